"""Acceptance of a document: known answers, and what holds whatever was measured."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measurement.fake import prompts
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.measurement.figures import figures
from trtspec.measurement.parts import Slo
from trtspec.measurement.records import Answer
from trtspec.measurement.result import Figures

Rounds = list[tuple[int, int]]
K = 6


def of(*per_prompt: tuple[Rounds, Rounds]) -> Figures:
    """Figures over prompts, each with its uncut and its cut rounds."""
    asked = prompts(len(per_prompt))
    counted = [RoundHistogram.from_rounds(*both) + RoundHistogram.empty(K) for both in per_prompt]
    answers = [
        Answer(p, "speculative", spec_mode="speculative", output_tokens=h.emitted, histogram=h)
        for p, h in zip(asked, counted, strict=True)
    ]
    return figures(answers, [], Slo())


def test_four_rounds() -> None:
    found = of(([(2, 4), (4, 4), (0, 4), (1, 4)], []))
    assert found.alpha is not None
    assert found.alpha.point == pytest.approx(0.7)
    assert found.draft_acceptance_rate == pytest.approx(0.4375)
    assert found.acceptance_length == pytest.approx(2.75)
    assert found.per_position is not None
    assert found.per_position[:4] == pytest.approx((0.75, 0.5, 0.25, 0.25))


def test_a_public_log_of_six_positions() -> None:
    """A thousand rounds that survive each position as often as the log says."""
    survived = [1000, 740, 473, 309, 187, 99, 57, 0]
    rounds = [(i, K) for i in range(K + 1) for _ in range(survived[i] - survived[i + 1])]
    found = of((rounds, []))
    assert found.per_position == pytest.approx((0.740, 0.473, 0.309, 0.187, 0.099, 0.057))
    assert found.acceptance_length == pytest.approx(2.865)
    assert found.draft_acceptance_rate == pytest.approx(0.311, abs=5e-4)


pairs = st.integers(0, K).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d)))
full = st.integers(0, K).map(lambda a: (a, K))
prompts_of_rounds = st.lists(
    st.tuples(st.lists(pairs, max_size=8), st.lists(pairs, max_size=2)), min_size=1, max_size=6
)


@given(st.lists(st.lists(full, min_size=1, max_size=12), min_size=1, max_size=6))
def test_length_is_one_and_the_sum_of_the_positions_where_rounds_are_full(per_prompt: list[Rounds]) -> None:
    found = of(*((rounds, []) for rounds in per_prompt))
    assert found.per_position is not None
    assert found.acceptance_length == pytest.approx(1.0 + sum(p or 0.0 for p in found.per_position))
    assert found.draft_acceptance_rate == pytest.approx(sum(p or 0.0 for p in found.per_position) / K)


@given(prompts_of_rounds)
def test_figures_follow_from_the_counters(per_prompt: list[tuple[Rounds, Rounds]]) -> None:
    found = of(*per_prompt)
    rounds = [r for full, cut in per_prompt for r in (*full, *cut)]
    accepted, drafted = sum(a for a, _ in rounds), sum(d for _, d in rounds)
    rejected = sum(a < d for full, _ in per_prompt for a, d in full)
    uncut = sum(len(full) for full, _ in per_prompt)
    assert (found.alpha is None) == (accepted + rejected == 0)
    if found.alpha is not None:
        assert found.alpha.point == pytest.approx(accepted / (accepted + rejected))
    assert found.draft_acceptance_rate == (pytest.approx(accepted / drafted) if drafted else None)
    assert found.acceptance_length == (pytest.approx((accepted + uncut) / len(rounds)) if rounds else None)


@given(prompts_of_rounds)
def test_positions_fall_and_lie_in_their_intervals(per_prompt: list[tuple[Rounds, Rounds]]) -> None:
    found = of(*per_prompt)
    assert found.per_position is not None
    assert found.position_intervals is not None
    known = [p for p in found.per_position if p is not None]
    assert all(a >= b - 1e-12 for a, b in pairwise(known))
    for point, interval in zip(found.per_position, found.position_intervals, strict=True):
        if interval is not None:
            assert interval.low is not None
            assert interval.high is not None
            assert interval.point == point
            assert 0.0 <= interval.low <= interval.point + 1e-12
            assert interval.point - 1e-12 <= interval.high <= 1.0


def test_macro_figures_are_means_over_prompts() -> None:
    found = of(([(6, 6)] * 9, []), ([(0, 6)], []))
    assert found.alpha_macro == pytest.approx(0.5)
    assert found.draft_acceptance_rate_macro == pytest.approx(0.5)
    assert found.acceptance_length_macro == pytest.approx((7 + 1) / 2)
    assert found.draft_acceptance_rate == pytest.approx(0.9)


def totals(accepted: int, drafted: int, tokens: int, rounds: int | None) -> Answer:
    return Answer(
        prompts(1)[0], "speculative", spec_mode="speculative", output_tokens=tokens, totals_only=True,
        accepted=accepted, drafted=drafted, rounds=rounds,
    )  # fmt: skip


def test_totals_that_cannot_be_end_nothing() -> None:
    """The audit calls it invalid; the document must get that far."""
    found = figures([totals(30, 40, 10, 4), totals(4, 12, 7, 3)], [], Slo())
    assert found.alpha_bound is not None
    assert found.alpha_bound.point == pytest.approx(14 / 17)


def test_totals_bound_acceptance_from_below() -> None:
    found = figures([totals(6, 16, 10, 4), totals(4, 12, 7, 3)], [], Slo())
    assert found.alpha is None
    assert found.histogram is None
    assert found.alpha_bound is not None
    assert found.alpha_bound.point == pytest.approx(10 / 17)
    assert found.draft_acceptance_rate == pytest.approx(10 / 28)
    assert found.acceptance_length == pytest.approx(17 / 7)
    assert figures([totals(6, 16, 10, None)], [], Slo()).acceptance_length is None
    assert figures([totals(0, 0, 10, 10)], [], Slo()).alpha_bound is None


@given(st.lists(full, min_size=1, max_size=30))
def test_the_bound_never_exceeds_alpha(rounds: Rounds) -> None:
    whole = RoundHistogram.from_rounds(rounds)
    found = figures([totals(whole.accepted, whole.drafted, whole.emitted, whole.rounds)], [], Slo())
    alpha = whole.alpha()
    assert alpha is not None
    assert found.alpha_bound is not None
    assert found.alpha_bound.point <= alpha + 1e-12
