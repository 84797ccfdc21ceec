"""Rounds of draft-target decoding, replayed on an answer that is already known.

A draft token is accepted only where it is the target's own, so whatever the draft proposes within a round up to its
first rejection it proposes behind a beginning of the target's answer. What it says at every place of that answer
therefore tells the rounds of every draft length, without running one of them.

Places of an answer are its tokens and, where it ended by itself, the end token behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trtspec.analysis.acceptance import RoundHistogram

MATCH, MISS, WITHHELD, ENDED = "+", "-", ".", "|"
"""What the draft says at a place: the target's token; another; an end token that it does not propose (the round is
shorter instead); the very end token of the answer, which it does propose (an accepted end cuts the round)."""


@dataclass(frozen=True)
class Trace:
    """One answer: the outcome at each place, and how far the draft goes on behind each miss, in order of the misses.

    `max_tokens` is the longest answer asked for; `tails` counts the tokens drafted behind a miss until the draft ends
    by itself, and may be empty: then it never does, which changes no figure but the tokens drafted.
    """

    outcomes: str
    max_tokens: int
    tails: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if set(self.outcomes) - {MATCH, MISS, WITHHELD, ENDED} or ENDED in self.outcomes[:-1]:
            raise ValueError(f"not the outcomes of an answer: {self.outcomes!r}")
        if len(self.outcomes) > self.max_tokens:
            raise ValueError(f"{len(self.outcomes)} places in an answer of at most {self.max_tokens} tokens")
        if len(self.outcomes) < self.max_tokens and self.outcomes[-1:] == MATCH:
            raise ValueError("an answer shorter than asked ends with an end token, and that cannot be a plain match")
        if self.tails and len(self.tails) != self.outcomes.count(MISS):
            raise ValueError(f"{self.outcomes.count(MISS)} misses and {len(self.tails)} tails")


@dataclass(frozen=True)
class Round:
    """Tokens drafted and accepted, and whether the answer ended inside the accepted ones."""

    drafted: int
    accepted: int
    cut: bool = False


def rounds(trace: Trace, k: int) -> Iterator[Round]:
    """The rounds of one answer with at most k draft tokens each; the last token always comes from the target."""
    tails = _by_place(trace)
    at = 0
    while at < len(trace.outcomes):
        this = _round(trace.outcomes, tails, at, min(k, trace.max_tokens - at - 1))
        yield this
        at += this.accepted + 1


def _round(outcomes: str, tails: dict[int, int], at: int, most: int) -> Round:
    for i in range(most):
        outcome = outcomes[at + i]
        if outcome == WITHHELD:
            return Round(i, i)
        if outcome == ENDED:
            return Round(i + 1, i, cut=True)
        if outcome == MISS:
            return Round(min(most, i + 1 + tails.get(at + i, most)), i)
    return Round(most, most)


def _by_place(trace: Trace) -> dict[int, int]:
    misses = (place for place, outcome in enumerate(trace.outcomes) if outcome == MISS)
    return dict(zip(misses, trace.tails, strict=False))


def histogram(traces: Iterable[Trace], k: int) -> RoundHistogram:
    """All rounds of all answers."""
    every = [r for trace in traces for r in rounds(trace, k)]
    counted = RoundHistogram.from_rounds(
        [(r.accepted, r.drafted) for r in every if not r.cut], [(r.accepted, r.drafted) for r in every if r.cut]
    )
    return RoundHistogram.empty(k) + counted


@dataclass(frozen=True)
class Expected:
    """Mean counts over the draft's random choices, the answer being given."""

    accepted: float
    tested: float
    rounds: float
    emitted: int


def expected(match: Sequence[float], untested: Sequence[float], max_tokens: int, k: int) -> Expected:
    """Mean counts of the rounds of one answer when the outcome of each place is drawn.

    `match[t]`, `untested[t]`: probabilities of MATCH, and of WITHHELD or ENDED, at place t; MISS has the rest.
    Rounds are a Markov chain over the places they begin at.
    """
    if len(match) < max_tokens and any(match[-1:]):
        raise ValueError("an end token is never a plain match")
    begins = [0.0] * (len(match) + 2)  # one behind a refused end, which is never reached
    begins[0] = 1.0
    accepted = tested = total = 0.0
    for at in range(len(match)):
        reach = begins[at]
        total += reach
        for place in range(at, at + min(k, max_tokens - at - 1)):
            if reach == 0.0:
                break
            accepted += reach * match[place]
            tested += reach * (1.0 - untested[place])
            begins[place + 1] += reach * (1.0 - match[place])
            reach *= match[place]
        else:
            begins[at + min(k, max_tokens - at - 1) + 1] += reach
    return Expected(accepted, tested, total, len(match))
