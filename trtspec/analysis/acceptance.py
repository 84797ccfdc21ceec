"""Counted rounds of speculative decoding, and every acceptance figure that derives from them.

A round drafts d tokens; the target tests them from the left up to its first rejection, keeps the a accepted ones and
adds one token of its own. A round *cut short* (end token, stop words or the token limit inside its accepted tokens)
counts only the a tokens that were kept, as accepted and tested, with no rejection and no token of the target's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import typing as npt

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RoundHistogram:
    """Rounds counted by tokens drafted (rows) and accepted (columns); int64 [K+1, K+1], a <= d."""

    uncut: Counts
    cut: Counts

    def __post_init__(self) -> None:
        if self.uncut.shape != self.cut.shape:
            raise ValueError(f"uncut is {self.uncut.shape}, cut is {self.cut.shape}")
        for name in ("uncut", "cut"):
            object.__setattr__(self, name, _checked(name, getattr(self, name)))

    @classmethod
    def empty(cls, k: int) -> RoundHistogram:
        """No rounds yet, for at most k draft tokens a round."""
        return cls(np.zeros((k + 1, k + 1), np.int64), np.zeros((k + 1, k + 1), np.int64))

    @classmethod
    def from_wire(cls, array: npt.ArrayLike) -> RoundHistogram:
        """From `spec_histogram` [2, K+1, K+1] (uncut, cut); ValueError where it is no such histogram."""
        try:
            counts = np.asarray(array)
        except ValueError:  # numpy's own words are about arrays
            raise ValueError("a histogram is [2, K+1, K+1], this has rows of unequal length") from None
        if counts.ndim != 3 or counts.shape[0] != 2:
            raise ValueError(f"a histogram is [2, K+1, K+1], this is {list(counts.shape)}")
        return cls(counts[0], counts[1])

    @classmethod
    def from_rounds(cls, rounds: Iterable[tuple[int, int]], cut: Iterable[tuple[int, int]] = ()) -> RoundHistogram:
        """From (accepted, drafted) pairs of uncut and cut rounds."""
        full, short = list(rounds), list(cut)
        k = max((drafted for _, drafted in full + short), default=0)
        arrays = np.zeros((2, k + 1, k + 1), np.int64)
        for i, pairs in enumerate((full, short)):
            for accepted, drafted in pairs:
                if not 0 <= accepted <= drafted:
                    raise ValueError(f"a round cannot accept {accepted} of {drafted}")
                arrays[i, drafted, accepted] += 1
        return cls.from_wire(arrays)

    def to_wire(self) -> Counts:
        """[2, K+1, K+1]: uncut, cut."""
        return np.stack([self.uncut, self.cut])

    def __add__(self, other: RoundHistogram) -> RoundHistogram:
        k = max(self.k, other.k)
        return RoundHistogram(
            _padded(self.uncut, k) + _padded(other.uncut, k), _padded(self.cut, k) + _padded(other.cut, k)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoundHistogram) and np.array_equal(self.to_wire(), other.to_wire())

    __hash__ = None  # type: ignore[assignment]

    @property
    def k(self) -> int:
        """Most draft tokens a round of this histogram can hold."""
        return len(self.uncut) - 1

    @property
    def rounds(self) -> int:
        """Rounds, those without draft tokens included."""
        return int(self.uncut.sum() + self.cut.sum())

    @property
    def drafted(self) -> int:
        """Draft tokens proposed, tested or not."""
        return int((self._both.sum(axis=1) * np.arange(self.k + 1)).sum())

    @property
    def accepted(self) -> int:
        """Draft tokens kept."""
        return int((self._both.sum(axis=0) * np.arange(self.k + 1)).sum())

    @property
    def rejected(self) -> int:
        """Draft tokens tested and refused: one for each uncut round that did not accept all it drafted."""
        return int(np.tril(self.uncut, -1).sum())

    @property
    def tested(self) -> int:
        """Draft tokens the target looked at: accepted and rejected."""
        return self.accepted + self.rejected

    @property
    def emitted(self) -> int:
        """Tokens produced: accepted, and one of the target's own in every uncut round."""
        return self.accepted + int(self.uncut.sum())

    def alpha(self) -> float | None:
        """Per-token acceptance, accepted / tested; None when nothing was tested."""
        return _ratio(self.accepted, self.tested)

    def draft_acceptance_rate(self) -> float | None:
        """accepted / drafted; falls as K grows, so it never ranks two K's. None when nothing was drafted."""
        return _ratio(self.accepted, self.drafted)

    def acceptance_length(self) -> float | None:
        """Tokens emitted per round; None without rounds."""
        return _ratio(self.emitted, self.rounds)

    def per_position(self) -> list[float | None]:
        """P(position i is accepted), i = 1..K; None where no round tells.

        The product of the conditional acceptances up to i (Kaplan and Meier 1958), so that a cut round speaks for
        the positions it kept and for no other; on full uncut rounds it is the plain share of rounds.
        """
        kept = self._accepted_at_least()
        refused = np.array([self.uncut[i:, i - 1].sum() for i in range(1, self.k + 1)], np.int64)
        drafted = np.cumsum(self._both.sum(axis=1)[::-1])[::-1][1:]
        shares: list[float | None] = []
        survival: float | None = 1.0
        for yes, no, offered in zip(kept, refused, drafted, strict=True):
            if survival and yes + no:
                survival *= float(yes / (yes + no))
            elif survival != 0.0 or not offered:
                survival = None
            shares.append(survival)
        return shares

    @property
    def _both(self) -> Counts:
        return np.asarray(self.uncut + self.cut)

    def _accepted_at_least(self) -> Counts:
        return np.asarray(np.cumsum(self._both.sum(axis=0)[::-1])[::-1][1:], np.int64)


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens per round when each draft token is accepted with probability alpha: (1 - a^(k+1)) / (1 - a).

    Leviathan et al. 2023, equation 1.
    """
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is a probability, not {alpha}")
    if k < 0:
        raise ValueError(f"k counts draft tokens, not {k}")
    return float(sum(alpha**i for i in range(k + 1)))


def tokens_from_positions(per_position: Sequence[float]) -> float:
    """Tokens per full round from measured P(position i accepted): one, and one more for each position."""
    return 1.0 + float(sum(per_position))


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _padded(counts: Counts, k: int) -> Counts:
    return np.pad(counts, (0, k + 1 - len(counts)))


def _checked(name: str, counts: Counts) -> Counts:
    """A read-only int64 copy; ValueError unless square, whole, not negative and zero above the diagonal."""
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.size:
        raise ValueError(f"{name} is [K+1, K+1], this is {list(counts.shape)}")
    if not np.issubdtype(counts.dtype, np.integer):
        raise ValueError(f"{name} holds counts, not {counts.dtype}")
    if (counts < 0).any():
        raise ValueError(f"{name} holds a negative count")
    if np.triu(counts, 1).any():
        raise ValueError(f"{name} has rounds that accepted more than they drafted")
    own = counts.astype(np.int64)
    own.setflags(write=False)
    return own
