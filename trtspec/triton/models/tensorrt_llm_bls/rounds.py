"""Counting rounds. A round is one draft call and the verify call that judges it. Pure arithmetic.

The histogram counts rounds by how they ended (0: ran out uncut, 1: cut short), by how many tokens were drafted and
by how many of those were accepted. A round is cut when the answer ends inside its accepted tokens: at an end
token, at the start of a stop sequence, or at max_tokens. Then only the kept tokens count as accepted, and nothing
was rejected. An uncut round emits one token more than it accepted, the target's own (an end token counts too).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

UNCUT, CUT = 0, 1


def agreeing(drafts: Sequence[int], tokens: Sequence[int]) -> int:
    """How many leading tokens of the verify call are the drafted ones: a rejected draft token never comes back."""
    count = 0
    for draft, token in zip(drafts, tokens, strict=False):
        if draft != token:
            break
        count += 1
    return count


@dataclass(frozen=True)
class RoundDone:
    """One round as it counts: a cut one tested and emitted what it kept."""

    drafted: int
    tested: int
    accepted: int
    emitted: int
    """Accepted tokens and the target's own one, which may be an end token."""
    seconds: float
    """Of the draft call and the verify call together."""


class Rounds:
    """Counters of one request."""

    def __init__(self, max_draft_len: int) -> None:
        size = max_draft_len + 1
        self.histogram = np.zeros((2, size, size), dtype=np.int32)

    def add(self, drafted: int, accepted: int, kept: int, seconds: float = 0.0) -> RoundDone:
        """One round: `kept` of its tokens (accepted ones and the target's own) stay in the answer."""
        if not 0 <= accepted <= drafted or kept < 0:
            raise ValueError(f"a round with {drafted} drafted, {accepted} accepted and {kept} kept tokens")
        if kept < accepted:
            self.histogram[CUT, drafted, kept] += 1
            return RoundDone(drafted, kept, kept, kept, seconds)
        self.histogram[UNCUT, drafted, accepted] += 1
        return RoundDone(drafted, min(accepted + 1, drafted), accepted, accepted + 1, seconds)

    @property
    def total(self) -> int:
        """Rounds."""
        return int(self.histogram.sum())

    @property
    def drafted(self) -> int:
        """Draft tokens sent to the target."""
        return int((self.histogram.sum(axis=(0, 2)) * np.arange(self.histogram.shape[1])).sum())

    @property
    def accepted(self) -> int:
        """Draft tokens that stay in the answer."""
        return int((self.histogram.sum(axis=(0, 1)) * np.arange(self.histogram.shape[2])).sum())

    @property
    def tested(self) -> int:
        """Draft tokens that were judged: those up to the first rejection, and the kept ones of a cut round."""
        drafted, accepted = np.indices(self.histogram.shape[1:])
        uncut = np.minimum(accepted + 1, drafted)
        return int((self.histogram[UNCUT] * uncut + self.histogram[CUT] * accepted).sum())

    @property
    def rate(self) -> float:
        """Accepted ÷ drafted, 0 without drafts: what TensorRT-LLM calls the acceptance rate."""
        return self.accepted / self.drafted if self.drafted else 0.0
