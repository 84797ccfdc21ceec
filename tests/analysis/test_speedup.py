"""Speed-up against worked numbers: a target step of 100 ms, a draft step of 15 ms, K = 5."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.analysis.acceptance import expected_tokens
from trtspec.analysis.speedup import (
    alpha_for,
    best_k,
    best_of,
    break_even_alpha,
    break_even_tokens,
    speedup,
    speedup_table,
)

C = 15 / 100


def test_a_round_of_175_ms_needs_more_than_1_75_tokens() -> None:
    assert 100 * break_even_tokens(5, C) == pytest.approx(175)
    assert speedup(1.75, 5, C) == pytest.approx(1.0)


@pytest.mark.parametrize(("alpha", "gain"), [(0.8, 2.11), (0.6, 1.36), (0.5, 1.125)])
def test_worked_gains(alpha: float, gain: float) -> None:
    assert speedup(expected_tokens(alpha, 5), 5, C) == pytest.approx(gain, abs=5e-3)


def test_verify_cost_and_overhead_are_part_of_the_round() -> None:
    assert break_even_tokens(4, 0.1, v=1.3, o=0.2) == pytest.approx(1.9)
    assert speedup(3.8, 4, 0.1, v=1.3, o=0.2) == pytest.approx(2.0)


@given(st.integers(1, 12), st.floats(0.0, 0.95), st.floats(1.0, 2.0))
def test_at_the_break_even_alpha_nothing_is_gained(k: int, c: float, v: float) -> None:
    alpha = break_even_alpha(k, c, v)
    if alpha is None:
        assert speedup(k + 1, k, c, v) < 1
    else:
        assert speedup(expected_tokens(alpha, k), k, c, v) == pytest.approx(1.0, abs=1e-9)


def test_break_even_ends() -> None:
    assert break_even_alpha(4, 1.2) is None
    assert break_even_alpha(4, 0.0) == 0.0


def test_best_k_is_the_best_of_all() -> None:
    k, gain = best_k(0.8, C, 16)
    gains = [speedup(expected_tokens(0.8, i), i, C) for i in range(1, 17)]
    assert gain == max(gains)
    assert k == gains.index(gain) + 1


def test_best_k_is_zero_where_no_k_gains() -> None:
    assert best_k(0.1, 0.3, 8) == (0, 1.0)


def test_best_k_shrinks_when_verifying_grows_dearer() -> None:
    assert best_k(0.8, 0.05, 16, v=lambda k: 1 + 0.2 * k)[0] < best_k(0.8, 0.05, 16)[0]


def test_table_rows_are_alphas_and_columns_are_ks() -> None:
    table = speedup_table([0.5, 0.8], [1, 5], C)
    assert table[1][1] == pytest.approx(2.11, abs=5e-3)
    assert table[0][1] == pytest.approx(1.125, abs=5e-3)
    assert table[0][0] == pytest.approx(1.5 / 1.15)


@pytest.mark.parametrize("costs", [{"k": -1, "c": 0.1}, {"k": 1, "c": -0.1}, {"k": 1, "c": 0.1, "v": 0.0}])
def test_costs_that_cannot_be_are_refused(costs: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        break_even_tokens(**costs)  # type: ignore[arg-type]


@given(st.integers(1, 16), st.floats(0.0, 1.0))
def test_the_acceptance_for_a_number_of_tokens_is_found_to_the_last_digits(k: int, alpha: float) -> None:
    needed = expected_tokens(alpha, k)
    found = alpha_for(needed, k)
    assert found is not None
    assert expected_tokens(found, k) == pytest.approx(needed, rel=1e-12)


def test_no_acceptance_gives_more_than_k_and_one_tokens() -> None:
    assert alpha_for(5.001, 4) is None
    assert alpha_for(5.0, 4) == pytest.approx(1.0)
    assert alpha_for(0.5, 4) == 0.0


def test_best_of_measured_tokens() -> None:
    assert best_of([1.9, 2.0, 2.05], [1.2, 1.4, 1.6]) == (1, pytest.approx(1.9 / 1.2))
    assert best_of([1.1, 1.2], [1.2, 1.4]) == (0, 1.0)
    assert best_of([2.0, 4.0], [1.0, 2.0]) == (1, 2.0), "of equals the smaller"


def test_check_pays_for_no_optimizer() -> None:
    """scipy.optimize takes half a second to import, more than the rest of `check`."""
    code = "import sys, trtspec.pairing.check; print([m for m in sys.modules if m.startswith('scipy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
