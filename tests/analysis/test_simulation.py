"""Replayed rounds against a loop that really drafts, and against hand-made examples."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.analysis.simulation import Expected, Round, Trace, expected, histogram, rounds

END, STOP, OTHER = 0, 1, 2


class Toy:
    """Two deterministic models over a few tokens: the next token is a function of all tokens so far."""

    def __init__(self, seed: int, agreement: float) -> None:
        self._seed, self._agreement = seed, agreement

    def _draw(self, ids: tuple[int, ...], who: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, who, len(ids), *ids])

    def target(self, ids: tuple[int, ...]) -> int:
        return int(self._draw(ids, 0).choice(6, p=[0.06, 0.06, 0.22, 0.22, 0.22, 0.22]))

    def draft(self, ids: tuple[int, ...]) -> int:
        rng = self._draw(ids, 1)
        return self.target(ids) if rng.random() < self._agreement else int(rng.integers(6))


def speculate(toy: Toy, k: int, max_tokens: int, withheld: set[int]) -> tuple[list[int], list[Round]]:
    """The loop itself: draft up to k tokens, judge them, keep the accepted ones and one of the target's own."""
    out: list[int] = []
    found: list[Round] = []
    while True:
        drafts: list[int] = []
        while len(drafts) < min(k, max_tokens - len(out) - 1):
            token = toy.draft((*out, *drafts))
            if token in withheld:
                break
            drafts.append(token)
            if token in (END, STOP):
                break
        for i, draft in enumerate([*drafts, None]):
            own = toy.target(tuple(out))
            ends = own in (END, STOP)
            if not ends:
                out.append(own)
            if own != draft or ends or len(out) == max_tokens:
                found.append(Round(len(drafts), i, cut=own == draft))
                break
        if ends or len(out) == max_tokens:
            return out, found


def traced(toy: Toy, answer: list[int], max_tokens: int, withheld: set[int], k_max: int) -> Trace:
    """What the draft says at every place of the target's answer."""
    places = [*answer, toy.target(tuple(answer))] if len(answer) < max_tokens else answer
    outcomes, tails = "", []
    for place, own in enumerate(places):
        before = tuple(places[:place])
        said = toy.draft(before)
        ends = said in (END, STOP)
        if said in withheld:
            outcomes += "."
        elif said == own:
            outcomes += "|" if ends else "+"
        else:
            outcomes += "-"
            tails.append(0 if ends else _tail(toy, (*before, said), withheld, k_max))
    return Trace(outcomes, max_tokens, tuple(tails))


def _tail(toy: Toy, ids: tuple[int, ...], withheld: set[int], k_max: int) -> int:
    for count in range(k_max):
        token = toy.draft(ids)
        if token in (END, STOP):
            return count + (token not in withheld)
        ids = (*ids, token)
    return k_max


@given(
    seed=st.integers(0, 10**6),
    agreement=st.sampled_from([0.0, 0.4, 0.8, 0.95, 1.0]),
    k=st.integers(1, 6),
    max_tokens=st.integers(1, 24),
    withheld=st.sampled_from([set(), {END}, {END, STOP}]),
)
def test_replay_equals_the_loop_round_by_round(
    seed: int, agreement: float, k: int, max_tokens: int, withheld: set[int]
) -> None:
    toy = Toy(seed, agreement)
    answer, looped = speculate(toy, k, max_tokens, withheld)
    trace = traced(toy, answer, max_tokens, withheld, k_max=6)
    assert list(rounds(trace, k)) == looped


@given(seed=st.integers(0, 10**6), k=st.integers(1, 6), max_tokens=st.integers(1, 24))
def test_without_tails_only_the_drafted_differ(seed: int, k: int, max_tokens: int) -> None:
    toy = Toy(seed, 0.6)
    answer, looped = speculate(toy, k, max_tokens, {END})
    known = traced(toy, answer, max_tokens, {END}, k_max=6)
    guessed = list(rounds(Trace(known.outcomes, max_tokens), k))
    assert [(r.accepted, r.cut) for r in guessed] == [(r.accepted, r.cut) for r in looped]
    assert all(a.drafted >= b.drafted for a, b in zip(guessed, looped, strict=True))
    one, other = histogram([Trace(known.outcomes, max_tokens)], k), histogram([known], k)
    assert (one.alpha(), one.acceptance_length()) == (other.alpha(), other.acceptance_length())


def test_rounds_by_hand() -> None:
    # 8 tokens asked for, all written; K = 3.
    assert list(rounds(Trace("++-+++++", 8, (1,)), 3)) == [Round(3, 2), Round(3, 3), Round(0, 0)]
    # The end token is the ninth place; the draft says it and does not propose it: a shorter round, no rejection.
    assert list(rounds(Trace("++++.", 9), 3)) == [Round(3, 3), Round(0, 0)]
    # It proposes it: the round is cut, its end counts neither as accepted nor as tested.
    assert list(rounds(Trace("+++|", 9), 4)) == [Round(4, 3, cut=True)]
    # A draft that ends too early and proposes its end: one rejection, nothing behind it.
    assert list(rounds(Trace("+-++", 4, (0,)), 3)) == [Round(2, 1), Round(1, 1)]


def test_histogram_counts_what_the_rounds_say() -> None:
    counted = histogram([Trace("++-+++++", 8, (1,)), Trace("+++|", 9)], 4)
    assert counted.k == 4
    assert counted == RoundHistogram.from_rounds([(2, 4), (4, 4)], [(3, 4)])
    assert counted.emitted == 8 + 3
    assert histogram([], 5) == RoundHistogram.empty(5)


@pytest.mark.parametrize(
    ("outcomes", "most", "tails"), [("+?", 4, ()), ("|+", 4, ()), ("+++", 2, ()), ("+--", 4, (1,)), ("-+", 4, ())]
)
def test_impossible_traces_are_refused(outcomes: str, most: int, tails: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Trace(outcomes, most, tails)


def _brute(match: list[float], withheld: list[float], max_tokens: int, k: int) -> Expected:
    """Sum over every combination of outcomes, each with its probability."""
    accepted = tested = count = 0.0
    for combination in itertools.product("+.-", repeat=len(match)):
        chances = [{"+": m, ".": w, "-": 1 - m - w}[o] for o, m, w in zip(combination, match, withheld, strict=True)]
        p = float(np.prod(chances))
        if p == 0.0:
            continue
        counted = histogram([Trace("".join(combination), max_tokens)], k)
        accepted, tested, count = (
            accepted + p * counted.accepted,
            tested + p * counted.tested,
            count + p * counted.rounds,
        )
    return Expected(accepted, tested, count, len(match))


@settings(max_examples=40)  # each looks at all outcomes
@given(st.data())
def test_expected_counts_are_the_mean_over_all_outcomes(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 6))
    max_tokens = data.draw(st.integers(n, n + 2))
    k = data.draw(st.integers(1, 5))
    chance = st.floats(0.0, 1.0)
    match = [data.draw(chance) for _ in range(n)]
    if n < max_tokens:
        match[-1] = 0.0  # the end token
    withheld = [data.draw(chance) * (1 - m) for m in match]
    got, wanted = expected(match, withheld, max_tokens, k), _brute(match, withheld, max_tokens, k)
    assert got.emitted == wanted.emitted
    np.testing.assert_allclose(
        [got.accepted, got.tested, got.rounds], [wanted.accepted, wanted.tested, wanted.rounds], atol=1e-9
    )
