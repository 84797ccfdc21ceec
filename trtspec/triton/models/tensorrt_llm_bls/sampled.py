"""The distribution that a draft token was drawn from, as the row of logits whose softmax it is.

Acceptance by logits keeps a draft token with the chance p ÷ q and otherwise draws from what p has more than q; the
answer follows the target's distribution only if q is what the token was really drawn from. TensorRT-LLM's target
takes the softmax of the draft's logits as they come (`ExternalDraftTokensLayer`), while the draft drew with
temperature, top_k and top_p: so these are applied here, the way both engines apply them.
"""

from __future__ import annotations

import numpy as np
from wire import Array


def sampled(
    logits: Array, temperature: float, top_k: int, top_p: float, banned: frozenset[int], width: int | None
) -> Array:
    """[n, vocab] the draft's own logits → [n, width] of the same type. `banned` ids could not be drawn.

    A narrower draft never drew the ids that it lacks; of a wider one, tokens beyond `width` were cut off before.
    """
    scores = logits.astype(np.float64) / temperature
    scores[:, sorted(banned)] = -np.inf
    rows = [_filtered(row, top_k, top_p) for row in scores]
    lowest = np.finfo(logits.dtype).min
    out = np.full((len(rows), width or logits.shape[-1]), lowest, dtype=logits.dtype)
    for line, row in zip(out, rows, strict=True):
        common = min(len(line), len(row))
        line[:common] = np.maximum(row[:common], lowest)
    return out


def _filtered(scores: Array, top_k: int, top_p: float) -> Array:
    """Log weights with what the filters leave out at minus infinity; of equal ones the lower ids stay."""
    if 0 < top_k < len(scores):
        order = np.argsort(-scores, kind="stable")
        scores[order[top_k:]] = -np.inf
    scores -= scores.max()
    if 0.0 < top_p < 1.0:
        weights = np.exp(scores)
        order = np.argsort(-weights, kind="stable")
        reached = np.cumsum(weights[order] / weights.sum())
        scores[order[int(np.searchsorted(reached, top_p)) + 1 :]] = -np.inf
    return scores
