"""What an answer would take with another draft length: rounds and seconds, from acceptance by position and step times.

    seconds of a round = k · draft + verify(k) + overhead(k)
    T(n) = seconds of a round + Σ P(a accepted) · T(n − a − 1)          n tokens still to come

so that rounds of every length, and the last one, which drafts no more than may still be written, count as they are.

Acceptance is clustered: a draft token behind accepted ones is likelier to be right than the first behind a rejection.
Shorter rounds begin more often within a row of accepted tokens, so cutting the measured positions off at a smaller K
says too little (up to 8 % of the tokens a round of the shipped pair). So the chance of a token is taken to depend on
how many were accepted in a row before it, and a round that begins behind a whole accepted one goes on in that row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StepTimes:
    """Seconds. `verify` by draft tokens verified; 0 is a step of the target. `token`: one of the target alone.

    `overhead` by draft tokens, of the lengths that were timed. For one request at a time it hardly depends on them;
    under load it is also what rounds save, or lose, because requests do not step together.
    """

    token: float
    draft: float
    verify: Mapping[int, float]
    overhead: Mapping[int, float]

    def __post_init__(self) -> None:
        if self.token <= 0 or self.draft < 0 or not self.verify or not self.overhead or min(self.verify.values()) <= 0:
            raise ValueError(f"not step times: {self}")

    @property
    def most(self) -> int:
        """The longest draft whose verification was timed."""
        return max(self.verify)

    def verifying(self, k: int) -> float:
        """Between two that were measured on a straight line; beyond the last one there is no answer."""
        known = sorted(self.verify)
        if k > known[-1]:
            raise ValueError(f"verifying {k} tokens was not measured, at most {known[-1]}")
        return float(np.interp(k, known, [self.verify[n] for n in known]))

    def round(self, k: int) -> float:
        """Never shorter than a quarter of its verification, whatever noise says."""
        known = sorted(self.overhead)
        more = float(np.interp(k, known, [self.overhead[n] for n in known]))
        return max(self.verifying(k) / 4, k * self.draft + self.verifying(k) + more)

    def without_overhead(self, histogram: npt.ArrayLike) -> float:
        """Of rounds counted by tokens drafted (rows): what their steps take."""
        counts = np.asarray(histogram).sum(axis=-1)
        return float(sum(n * (d * self.draft + self.verifying(d)) for d, n in enumerate(counts) if n))


def conditional(per_position: Sequence[float | None]) -> tuple[float, ...]:
    """P(position i is accepted | those before it are), as far as it was measured."""
    found: list[float] = []
    before = 1.0
    for share in per_position:
        if share is None or before <= 0.0:
            break
        found.append(min(1.0, max(0.0, share / before)))
        before = share
    return tuple(found)


FITTING = 200


def fitted(per_position: Sequence[float | None]) -> tuple[float, ...]:
    """P(accepted | i accepted in a row before it), i = 0, 1, …; the last one holds for every longer row.

    What is measured by position mixes rounds behind a miss with rounds behind a whole round, where the row goes on. So
    the chances are raised or lowered until rounds of the measured length have the measured acceptance by position.
    """
    measured = np.array(conditional(per_position), np.float64)
    if not measured.size:
        return ()
    chances = measured.copy()
    for _ in range(FITTING):
        own = np.array(conditional(positions(tuple(chances), len(measured))), np.float64)
        if len(own) < len(measured):  # a position that nothing reaches
            break
        better = np.clip(chances * measured / np.maximum(own, 1e-12), 0.0, 1.0)
        if float(np.abs(better - chances).max()) < 1e-9:
            break
        chances = better
    return tuple(float(c) for c in chances)


def positions(chances: Sequence[float], k: int) -> tuple[float, ...]:
    """P(position i of a round is accepted), i = 1 … k, over a long answer made in rounds of k."""
    moves = _Moves.of(np.array(chances, np.float64), k)
    begins = moves.stationary()
    return tuple(float(begins @ moves.reached[:, i]) for i in range(1, k + 1))


def tokens_a_round(chances: Sequence[float], k: int) -> float:
    """Over a long answer."""
    return 1.0 + float(sum(positions(chances, k)))


@dataclass(frozen=True)
class Answers:
    """Seconds and rounds of answers of every length: index n is n tokens, one that ends by itself counts its end."""

    seconds: Array
    rounds: Array


def answers(chances: Sequence[float], k: int, most: int, times: StepTimes, *, cut: bool) -> Answers:
    """Mean seconds and rounds of answers of 0 … `most` tokens with rounds of k; `chances` are `fitted(…)`.

    `cut`: the answer ends at its token limit, so that its last rounds draft less; else it ends by itself, and its last
    round is as long as any.
    """
    if not chances or k < 1:
        raise ValueError("rounds need a draft and its acceptance")
    row = np.array(chances, np.float64)
    # [tokens left + k + 1, state, seconds and rounds]: nothing is left below k + 1.
    found = np.zeros((most + k + 2, len(row), 2))
    moves = {d: _Moves.of(row, d) for d in ({*range(k + 1)} if cut else {k})}
    for left in range(1, most + 1):
        drafted = min(k, left - 1) if cut else k
        this, at = moves[drafted], left + k + 1
        behind = found[at - drafted : at, 0][::-1]  # after 0, 1, … accepted tokens and a miss
        then = found[at - drafted - 1]
        found[at] = this.missed @ behind + this.whole @ then + (times.round(drafted), 1.0)
    seconds, rounds = np.moveaxis(found[k + 1 :, 0], -1, 0)
    return Answers(seconds, rounds)


@dataclass(frozen=True)
class _Moves:
    """A round, by the state it begins in: how many tokens were accepted in a row before it."""

    reached: Array
    """[state, i]: P(the first i are accepted)."""
    missed: Array
    """[state, a]: P(a accepted, then a miss): the next round begins in state 0."""
    whole: Array
    """[state, state]: P(all accepted, and the next round begins there)."""

    @classmethod
    def of(cls, chances: Array, k: int) -> _Moves:
        last = len(chances) - 1
        states = np.arange(len(chances))
        own = chances[np.minimum(states[:, None] + np.arange(k + 1), last)]
        reached = np.cumprod(np.concatenate([np.ones((len(chances), 1)), own[:, :k]], axis=1), axis=1)
        whole = np.zeros((len(chances), len(chances)))
        # Behind a whole round the target adds a token that nobody drafted: had the draft met it, the row goes on.
        whole[states, np.minimum(states + k + 1, last)] += reached[:, k] * own[:, k]
        whole[:, 0] += reached[:, k] * (1.0 - own[:, k])
        return cls(reached, reached[:, :k] * (1.0 - own[:, :k]), whole)

    def stationary(self) -> Array:
        """How often a round of a long answer begins in each state."""
        chain = self.whole.copy()
        chain[:, 0] += self.missed.sum(axis=1)
        size = len(chain)
        equations = np.vstack([chain.T - np.eye(size), np.ones(size)])
        found = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]
        return np.asarray(np.clip(found, 0.0, 1.0), np.float64)


def crossing(loads: Sequence[float], gains: Sequence[float], level: float = 1.0) -> float | None:
    """The load at which the gain falls to `level`, between two that were measured; None where it does not.

    A straight line over the logarithm of the load.
    """
    pairs = sorted(zip(loads, gains, strict=True))
    for i in range(len(pairs) - 1):
        (load, gain), (further, less) = pairs[i : i + 2]
        if gain > level >= less:
            part = (gain - level) / (gain - less)
            return float(np.exp(np.interp(part, [0.0, 1.0], np.log([load, further]))))
    return None
