"""Do two runs of one model say the same? Logits at every position of some texts, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trtspec.backends.scoring.base import Scorer

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """`difference`: largest |difference| of two logits; `largest`: largest |logit| of the first run; `typical`: what
    the largest difference of a position does not exceed at 99 of 100 positions.

    KL(first ‖ second) in nats per position; `top1`: share of positions with the same likeliest token.
    """

    texts: int
    positions: int
    difference: float
    typical: float
    largest: float
    kl_mean: float
    kl_max: float
    top1: float

    @property
    def relative(self) -> float:
        """Largest difference ÷ largest logit."""
        return self._share(self.difference)

    @property
    def relative_typical(self) -> float:
        """Typical difference ÷ largest logit."""
        return self._share(self.typical)

    def as_dict(self) -> dict[str, Any]:
        """All figures."""
        return {**asdict(self), "relative": self.relative, "relative_typical": self.relative_typical}

    def _share(self, difference: float) -> float:
        return difference / self.largest if self.largest else float(difference > 0)


def agreement(
    first: Scorer,
    second: Scorer,
    texts: Sequence[Sequence[int]],
    progress: Callable[[int, int], None] | None = None,
) -> Agreement:
    """Compare on every position of `texts` (token ids), one text at a time; not finite logits disagree entirely."""
    vocab = min(first.vocab_size, second.vocab_size)
    differences, largest, divergences, same = [np.zeros(0)], [0.0], [np.zeros(0)], 0
    for number, ids in enumerate(texts, start=1):
        one, other = (scorer.logits(ids, 0)[:, :vocab].astype(np.float64) for scorer in (first, second))
        gap = np.abs(one - other)
        differences.append(np.where(np.isfinite(gap), gap, np.inf).max(-1))
        largest.append(float(np.abs(one).max()))
        divergences.append(_divergence(one, other))
        same += int((one.argmax(-1) == other.argmax(-1)).sum())
        if progress is not None:
            progress(number, len(texts))
    every, gaps = np.concatenate(divergences), np.concatenate(differences)
    return Agreement(
        texts=len(texts),
        positions=len(every),
        difference=float(gaps.max(initial=0.0)),
        typical=float(np.quantile(gaps, 0.99, method="lower")) if len(gaps) else 0.0,
        largest=max(largest),
        kl_mean=float(every.mean()) if len(every) else 0.0,
        kl_max=float(every.max(initial=0.0)),
        top1=same / len(every) if len(every) else 1.0,
    )


def _divergence(one: Doubles, other: Doubles) -> Doubles:
    p, q = _logprobs(one), _logprobs(other)
    found = (np.exp(p) * (p - q)).sum(-1)
    return np.asarray(np.where(np.isfinite(found), np.maximum(found, 0.0), np.inf), np.float64)


def _logprobs(logits: Doubles) -> Doubles:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)), np.float64)
