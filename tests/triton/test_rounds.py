"""Counting rounds, against RoundHistogram's arithmetic and by hand."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.triton.models.tensorrt_llm_bls.rounds import Rounds, agreeing

K = 8


@st.composite
def one_round(draw: st.DrawFn) -> tuple[int, int, int]:
    drafted = draw(st.integers(0, K))
    accepted = draw(st.integers(0, drafted))
    return drafted, accepted, draw(st.integers(0, accepted + 1))


@given(st.lists(one_round(), max_size=40))
def test_totals_are_sums_over_rounds_and_agree_with_the_analysis(played: list[tuple[int, int, int]]) -> None:
    rounds = Rounds(K)
    for each in played:
        rounds.add(*each)
    wire = RoundHistogram.from_wire(rounds.histogram)
    assert (rounds.total, rounds.drafted, rounds.accepted, rounds.tested) == (
        wire.rounds,
        wire.drafted,
        wire.accepted,
        wire.tested,
    )
    assert rounds.total == len(played)
    assert rounds.drafted == sum(d for d, _, _ in played)
    assert rounds.accepted == sum(min(a, k) for _, a, k in played)
    assert rounds.accepted <= rounds.tested <= rounds.drafted
    assert wire.rejected == sum(k >= a and a < d for d, a, k in played)


@pytest.mark.parametrize(
    ("drafted", "accepted", "kept", "tested", "cut"),
    [
        (4, 2, 3, 3, False),  # the third was rejected
        (4, 4, 5, 4, False),  # all accepted, one more from the target
        (4, 4, 4, 4, False),  # all accepted, then the target's own end token
        (4, 4, 1, 1, True),  # an end token as the second of four accepted tokens
        (4, 2, 0, 0, True),  # a stop word that began in an earlier round
        (4, 2, 2, 3, False),  # only the target's own token is dropped: the rejection stands
        (0, 0, 1, 0, False),  # nothing drafted
    ],
)
def test_how_a_round_is_counted(drafted: int, accepted: int, kept: int, tested: int, cut: bool) -> None:
    rounds = Rounds(K)
    rounds.add(drafted, accepted, kept)
    assert (rounds.tested, bool(rounds.histogram[1].sum())) == (tested, cut)


def test_impossible_rounds_are_refused() -> None:
    for impossible in ((2, 3, 3), (2, 1, -1), (2, -1, 0)):
        with pytest.raises(ValueError, match="a round with"):
            Rounds(K).add(*impossible)


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=9))
def test_agreeing_is_the_common_beginning(drafts: list[int], tokens: list[int]) -> None:
    n = agreeing(drafts, tokens)
    assert drafts[:n] == tokens[:n]
    assert n in (len(drafts), len(tokens)) or drafts[n] != tokens[n]


def test_the_rate_without_drafts_is_zero(bls: dict[str, ModuleType]) -> None:
    assert bls["rounds"].Rounds(2).rate == 0.0
