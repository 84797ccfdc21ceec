"""Counted rounds against hand-computed truth, and rules that hold for any rounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.analysis.acceptance import RoundHistogram, expected_tokens, tokens_from_positions

ROUND = st.integers(0, 6).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d)))
ROUNDS = st.lists(ROUND, max_size=40)
HISTOGRAM = st.builds(RoundHistogram.from_rounds, ROUNDS, ROUNDS)


def full(k: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(st.integers(0, k), st.just(k)), min_size=1, max_size=60)


def test_worked_example() -> None:
    counted = RoundHistogram.from_rounds([(2, 4), (4, 4), (0, 4), (1, 4)])
    assert (counted.rounds, counted.drafted, counted.tested, counted.accepted) == (4, 16, 10, 7)
    assert counted.alpha() == pytest.approx(0.7)
    assert counted.draft_acceptance_rate() == pytest.approx(0.4375)
    assert counted.acceptance_length() == pytest.approx(2.75)
    assert counted.per_position() == pytest.approx([0.75, 0.5, 0.25, 0.25])


def test_public_log_of_six_positions() -> None:
    positions = [0.740, 0.473, 0.309, 0.187, 0.099, 0.057]
    length = tokens_from_positions(positions)
    assert length == pytest.approx(2.865)
    assert (length - 1) / 6 == pytest.approx(0.311, abs=5e-4)


def test_a_cut_round_is_tested_only_where_it_was_kept() -> None:
    counted = RoundHistogram.from_rounds([], cut=[(2, 4)])
    assert (counted.accepted, counted.tested, counted.rejected, counted.emitted) == (2, 2, 0, 2)
    assert counted.alpha() == 1.0
    assert counted.per_position() == [1.0, 1.0, None, None]


def test_a_round_without_drafts_is_a_round() -> None:
    counted = RoundHistogram.from_rounds([(0, 0)])
    assert (counted.rounds, counted.emitted, counted.drafted) == (1, 1, 0)
    assert counted.alpha() is None
    assert counted.draft_acceptance_rate() is None
    assert counted.acceptance_length() == 1.0


def test_nothing_measured_is_none_not_zero() -> None:
    empty = RoundHistogram.empty(3)
    assert empty.alpha() is None
    assert empty.acceptance_length() is None
    assert empty.per_position() == [None, None, None]


def test_never_accepted_is_zero_not_none() -> None:
    counted = RoundHistogram.from_rounds([(0, 2)])
    assert counted.alpha() == 0.0
    assert counted.per_position() == [0.0, 0.0]


def test_a_position_that_was_never_drafted_is_none() -> None:
    shorter = RoundHistogram.from_rounds([(0, 1)]) + RoundHistogram.empty(2)
    assert shorter.per_position() == [0.0, None]


def test_a_cut_round_does_not_pull_later_positions_down() -> None:
    """One full round accepts all, one is cut after its first: position 2 was refused by nobody."""
    counted = RoundHistogram.from_rounds([(2, 2)], cut=[(1, 2)])
    assert counted.per_position() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3, 4), int), "K\\+1"),
        (np.zeros((3, 3), int), "\\[2, K\\+1"),
        (np.zeros((2, 0, 0), int), "K\\+1"),
        (np.array([[[0, 1], [0, 0]]] * 2), "more than they drafted"),
        (np.full((2, 1, 1), -1), "negative"),
        (np.zeros((2, 2, 2), float), "counts"),
    ],
)
def test_no_histogram_is_refused(array: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RoundHistogram.from_wire(array)


def test_a_round_cannot_accept_more_than_it_drafted() -> None:
    with pytest.raises(ValueError, match="accept 3 of 2"):
        RoundHistogram.from_rounds([(3, 2)])


def test_counts_cannot_be_changed_from_outside() -> None:
    source = np.zeros((2, 2, 2), np.int32)
    counted = RoundHistogram.from_wire(source)
    source[0, 1, 1] = 5
    assert counted.rounds == 0
    with pytest.raises(ValueError, match="read-only"):
        counted.uncut[0, 0] = 1


@given(HISTOGRAM)
def test_wire_round_trip(counted: RoundHistogram) -> None:
    assert RoundHistogram.from_wire(counted.to_wire().astype(np.int32)) == counted


@given(HISTOGRAM, HISTOGRAM)
def test_adding_commutes_and_keeps_the_counters(a: RoundHistogram, b: RoundHistogram) -> None:
    assert a + b == b + a
    for name in ("rounds", "drafted", "tested", "accepted", "rejected", "emitted"):
        assert getattr(a + b, name) == getattr(a, name) + getattr(b, name)


@given(HISTOGRAM)
def test_rules_of_any_histogram(counted: RoundHistogram) -> None:
    assert counted.accepted <= counted.tested <= counted.drafted
    assert counted.tested == counted.accepted + counted.rejected
    alpha, shares = counted.alpha(), [p for p in counted.per_position() if p is not None]
    if alpha is not None:
        assert alpha == counted.accepted / (counted.accepted + counted.rejected)
    assert shares == sorted(shares, reverse=True)


@given(st.integers(1, 6).flatmap(full))
def test_length_is_one_and_the_sum_of_the_positions(rounds: list[tuple[int, int]]) -> None:
    counted = RoundHistogram.from_rounds(rounds)
    positions = counted.per_position()
    plain = [sum(a >= i for a, _ in rounds) / len(rounds) for i in range(1, counted.k + 1)]
    assert positions == pytest.approx(plain)
    assert counted.acceptance_length() == pytest.approx(tokens_from_positions(plain))


@pytest.mark.parametrize(("alpha", "tokens"), [(0.8, 3.69), (0.6, 2.38), (0.5, 1.97)])
def test_expected_tokens_at_five(alpha: float, tokens: float) -> None:
    assert expected_tokens(alpha, 5) == pytest.approx(tokens, abs=5e-3)


def test_expected_tokens_ends() -> None:
    assert expected_tokens(0.0, 5) == 1.0
    assert expected_tokens(1.0, 5) == 6.0
    assert expected_tokens(0.3, 0) == 1.0


@given(st.floats(0, 0.999), st.integers(0, 20))
def test_expected_tokens_is_the_closed_form(alpha: float, k: int) -> None:
    assert expected_tokens(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


@pytest.mark.parametrize(("alpha", "k"), [(-0.1, 4), (1.1, 4), (0.5, -1), (float("nan"), 4)])
def test_expected_tokens_refuses_nonsense(alpha: float, k: int) -> None:
    with pytest.raises(ValueError):
        expected_tokens(alpha, k)
