"""Acceptance of a draft on texts its target wrote, by one forward pass of the draft: what training watches.

Greedy: exact. Speculative decoding writes the target's own text, and a draft token is accepted when it and all before
it in its round are the target's, so that the draft's choice after every prefix of the text decides each round.
Sampled: after a prefix of its own the target accepts with probability sum over tokens of min(p, q) (Leviathan et al.
2023, theorem 3.5); outcomes are drawn with these, along texts of the target. Real rounds then also write what the
draft proposed, so this is close, not exact. Nucleus and top-k filters are left out.
"""

# The project's mypy does not look into torch.
# mypy: allow-untyped-decorators
from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.analysis.simulation import ENDED, MATCH, MISS, WITHHELD, Trace, histogram
from trtspec.distil.model import autocast, logits_at, padded
from trtspec.distil.texts import Text

ROWS = 16


@torch.inference_mode()
def acceptance(
    model: Any,
    texts: Sequence[Text],
    k: int,
    end_ids: Sequence[int],
    *,
    temperature: float = 0.0,
    bfloat16: bool = False,
    seed: int = 0,
) -> list[RoundHistogram]:
    """One histogram for each text, in order, of rounds of `k` draft tokens."""
    device = str(model.device).split(":")[0]
    order = sorted(range(len(texts)), key=lambda i: len(texts[i].ids))
    found: dict[int, RoundHistogram] = {}
    training, _ = model.training, model.eval()
    for start in range(0, len(order), ROWS):
        chosen = order[start : start + ROWS]
        batch = [texts[i] for i in chosen]
        ids, counted = padded(batch, device)
        with autocast(device, bfloat16):
            logits = logits_at(model, ids, counted).float().cpu()
        at = 0
        for i, text in zip(chosen, batch, strict=True):
            rows = logits[at : at + len(text.answer)]
            at += len(text.answer)
            if temperature == 0:
                trace = greedy_trace(rows.argmax(-1).tolist(), text, end_ids)
            else:
                chance = random.Random(f"{seed}:{i}")  # noqa: S311 (not for secrets)
                trace = drawn_trace(_shared(rows, text, temperature), text, end_ids, chance)
            found[i] = histogram([trace], k)
    model.train(training)
    return [found[i] for i in range(len(texts))]


def greedy_trace(said: Sequence[int], text: Text, end_ids: Sequence[int]) -> Trace:
    """The outcomes of one answer, given what the draft says at each of its places.

    As served, the first end id is not proposed: a draft that says it ends the round there.
    """
    own = text.answer.tolist()
    outcomes = "".join(
        WITHHELD if token in end_ids[:1] else MATCH if token == wanted else MISS
        for token, wanted in zip(said, own, strict=True)
    )
    return _trace(outcomes, text, end_ids)


def drawn_trace(shares: Sequence[float], text: Text, end_ids: Sequence[int], chance: random.Random) -> Trace:
    """The same, each proposal being accepted with its probability."""
    outcomes = "".join(MATCH if chance.random() < share else MISS for share in shares)
    return _trace(outcomes, text, end_ids)


def _trace(outcomes: str, text: Text, end_ids: Sequence[int]) -> Trace:
    ended = int(text.answer[-1]) in end_ids
    if ended and outcomes[-1] == MATCH:
        outcomes = outcomes[:-1] + ENDED
    return Trace(outcomes, max(text.limit, len(outcomes)) if ended else len(outcomes))


def _shared(logits: Any, text: Text, temperature: float) -> list[float]:
    """Per answer token: what the target's distribution and that of these logits have in common."""
    if text.top_ids is None or text.top_logprobs is None:
        raise ValueError("sampled acceptance needs the target's likeliest tokens")
    q = torch.softmax(logits / temperature, dim=-1).gather(-1, torch.from_numpy(text.top_ids).long())
    p = torch.from_numpy(text.top_logprobs).float().exp()
    found: list[float] = torch.minimum(p, q).sum(-1).tolist()
    return found
