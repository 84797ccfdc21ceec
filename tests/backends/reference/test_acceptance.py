"""The rejection rule keeps the target's distribution, whatever the draft's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from trtspec.backends.reference.acceptance import accepts, residual
from trtspec.backends.reference.sampling import ACCEPT, RESIDUAL, TOKEN, draw, uniform


@st.composite
def pairs(pick: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two distributions over up to 12 tokens, zeros included."""
    size = pick(st.integers(1, 12))
    weights = hnp.arrays(np.float64, size, elements=st.one_of(st.just(0.0), st.floats(1e-3, 1.0)))
    p, q = pick(weights.filter(lambda w: w.sum() > 0)), pick(weights.filter(lambda w: w.sum() > 0))
    return p / p.sum(), q / q.sum()


@given(pairs())
def test_the_rule_gives_exactly_the_target(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """Summed over the draft's draw, P(token) = q·min(1, p/q) + P(rejected)·residual, which must be p."""
    p, q = pair
    kept = np.array([q[x] * min(1.0, p[x] / q[x]) if q[x] > 0 else 0.0 for x in range(len(p))])
    rest = residual(p, q)
    total = kept + (1 - kept.sum()) * rest / rest.sum()
    np.testing.assert_allclose(total, p, atol=1e-12)


@given(pairs(), st.floats(0, 1, exclude_max=True), st.integers(0, 11))
def test_accepts_is_the_comparison(pair: tuple[np.ndarray, np.ndarray], u: float, token: int) -> None:
    p, q = pair
    token %= len(p)
    assert accepts(p, q, token, u) == (p[token] > u * q[token])


@given(pairs())
def test_a_token_the_target_forbids_is_never_kept(pair: tuple[np.ndarray, np.ndarray]) -> None:
    p, q = pair
    for token in np.flatnonzero(p == 0):
        assert not accepts(p, q, int(token), 0.0)
        assert residual(p, q)[token] == 0


def test_equal_distributions_leave_the_targets_own() -> None:
    p = np.array([0.25, 0.75])
    np.testing.assert_array_equal(residual(p, p.copy()), p)


def test_sampled_end_to_end_with_the_counter_based_numbers() -> None:
    """One position, 30000 seeds: the draft draws, the rule judges; chi-square against the target."""
    p, q = np.array([0.5, 0.1, 0.15, 0.25, 0.0]), np.array([0.1, 0.5, 0.2, 0.1, 0.1])
    n, position = 30000, 11
    counts = np.zeros(5)
    for seed in range(n):
        token = draw(q, uniform(seed, position, TOKEN))
        if not accepts(p, q, token, uniform(seed, position, ACCEPT)):
            token = draw(residual(p, q), uniform(seed, position, RESIDUAL))
        counts[token] += 1
    assert counts[4] == 0
    assert stats.chisquare(counts[:4], p[:4] * n).pvalue > 1e-3
