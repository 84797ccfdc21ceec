"""Prediction of other draft lengths, against hand-computed cases and simulated answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.analysis.acceptance import expected_tokens
from trtspec.analysis.prediction import (
    StepTimes,
    answers,
    conditional,
    crossing,
    fitted,
    positions,
    tokens_a_round,
)
from trtspec.analysis.simulation import ENDED, MATCH, MISS, Trace, histogram
from trtspec.analysis.simulation import rounds as replay


def times(**changes: Any) -> StepTimes:
    base: dict[str, Any] = {"token": 1.0, "draft": 0.1, "verify": {0: 1.0, 4: 1.4, 8: 2.2}, "overhead": {4: 0.3}}
    return StepTimes(**(base | changes))


def test_a_round_is_its_steps_and_its_overhead() -> None:
    assert times().round(4) == pytest.approx(4 * 0.1 + 1.4 + 0.3)
    assert times().verifying(2) == pytest.approx(1.2)
    assert times().verifying(6) == pytest.approx(1.8)
    assert times(overhead={2: 0.1, 6: 0.5}).round(3) == pytest.approx(3 * 0.1 + 1.3 + 0.2)
    assert times(overhead={4: -5.0}).round(4) == pytest.approx(1.4 / 4)
    with pytest.raises(ValueError, match="at most 8"):
        times().verifying(9)
    with pytest.raises(ValueError, match="not step times"):
        times(token=0.0)


def test_steps_of_counted_rounds() -> None:
    counted = np.zeros((5, 5), np.int64)
    counted[4, 2], counted[2, 2], counted[0, 0] = 3, 1, 2
    assert times().without_overhead(counted) == pytest.approx(3 * (0.4 + 1.4) + (0.2 + 1.2) + 2 * 1.0)


def test_a_draft_of_fifteen_hundredths_at_five_needs_1_75_tokens_a_round() -> None:
    """Steps alone, v = 1, o = 0: a round takes 1.75 target steps."""
    cost = times(draft=0.15, verify={0: 1.0, 5: 1.0}, overhead={5: 0.0}).round(5)
    assert cost == pytest.approx(1.75)


def test_conditional_stops_where_nothing_is_known() -> None:
    assert conditional([0.8, 0.4, None, 0.1]) == pytest.approx((0.8, 0.5))
    assert conditional([0.5, 0.0, 0.0]) == pytest.approx((0.5, 0.0))
    assert conditional([]) == ()
    assert fitted([]) == ()


@given(st.floats(0.05, 0.95), st.integers(1, 8), st.integers(1, 8))
def test_without_clusters_it_is_the_formula(alpha: float, measured: int, k: int) -> None:
    chances = fitted([alpha**i for i in range(1, measured + 1)])
    assert tokens_a_round(chances, k) == pytest.approx(expected_tokens(alpha, k), rel=1e-6)


@given(st.lists(st.floats(0.05, 0.97), min_size=1, max_size=8))
def test_fitting_finds_chances_that_give_the_positions_back(chances: list[float]) -> None:
    shares = positions(chances, len(chances))
    assert positions(fitted(shares), len(chances)) == pytest.approx(shares, abs=1e-4)


def clustered(rng: np.random.Generator, places: int, chances: list[float]) -> str:
    """Outcomes of an answer whose matches come in rows; the draft knows no end token."""
    found, row = "", 0
    for _ in range(places):
        hit = rng.random() < chances[min(row, len(chances) - 1)]
        found, row = found + (MATCH if hit else MISS), row + 1 if hit else 0
    return found


def test_shorter_rounds_of_clustered_answers_are_predicted_from_the_longest() -> None:
    """Where positions that are simply cut off say too little."""
    rng = np.random.default_rng(3)
    traces = [Trace(clustered(rng, 4000, [0.4, 0.6, 0.75, 0.85, 0.9]), 4000) for _ in range(10)]
    longest = histogram(traces, 8).per_position()
    chances = fitted(longest)
    for k in range(1, 9):
        real = histogram(traces, k).acceptance_length()
        assert real is not None
        assert tokens_a_round(chances, k) == pytest.approx(real, rel=0.02)
    cut_off = 1.0 + sum(share or 0.0 for share in longest[:2])
    real = histogram(traces, 2).acceptance_length()
    assert real is not None
    assert cut_off < 0.96 * real


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_answers_are_the_mean_of_simulated_ones(cut: bool, k: int) -> None:
    """Rounds shorten at the token limit, and do not where the answer ends by itself."""
    rng, chances, places = np.random.default_rng(5), [0.5, 0.7, 0.8], 30
    seconds, counts = [], []
    for _ in range(3000):
        outcomes = clustered(rng, places, chances)
        trace = Trace(outcomes, places) if cut else Trace(outcomes[:-1] + _end(outcomes[-1]), 10 * places)
        own = list(replay(trace, k))
        counts.append(len(own))
        seconds.append(sum(times().round(r.drafted) for r in own))
    found = answers(chances, k, places, times(), cut=cut)
    assert found.rounds[places] == pytest.approx(np.mean(counts), rel=0.02)
    # A round that meets the end drafts no further; the model takes it for a whole one.
    assert found.seconds[places] == pytest.approx(np.mean(seconds), rel=0.02 if cut else 0.04)


def _end(outcome: str) -> str:
    return ENDED if outcome == MATCH else MISS


def test_answers_by_hand() -> None:
    """One token never drafts; two draft one, whatever K; all accepted is a round of k + 1."""
    found = answers([1.0], 4, 10, times(), cut=True)
    assert found.rounds[:7] == pytest.approx([0, 1, 1, 1, 1, 1, 2])
    assert found.seconds[1] == pytest.approx(times().round(0))
    assert found.seconds[2] == pytest.approx(times().round(1))
    assert answers([0.0], 2, 5, times(), cut=False).rounds[5] == pytest.approx(5)
    with pytest.raises(ValueError, match="acceptance"):
        answers([], 2, 5, times(), cut=True)


def test_the_load_where_a_gain_ends() -> None:
    assert crossing([1, 4, 16], [1.5, 1.2, 0.8]) == pytest.approx(8.0)
    assert crossing([4, 1], [0.5, 1.5]) == pytest.approx(2.0)
    assert crossing([1, 4], [1.5, 1.2]) is None
    assert crossing([1, 4], [0.9, 0.8]) is None
    assert crossing([2], [1.5]) is None
