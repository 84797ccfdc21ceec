"""Greedy speculative decoding with kept caches, one prompt at a time, counting as it goes."""

# The project's mypy does not look into torch.
# mypy: allow-untyped-decorators
from __future__ import annotations

from dataclasses import dataclass, field

import torch

from .model import EOS_ID, Cache, Llama


@dataclass
class Counts:
    """What one answer's rounds added up to."""

    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    output: list[int] = field(default_factory=list)


class Reader:
    """A model with its cache over one growing text."""

    def __init__(self, model: Llama, length: int) -> None:
        self.model, self.cache, self.seen = model, Cache(model.shape, 1, length), 0

    def choices(self, text: list[int], last: int) -> list[int]:
        """Read what is new in `text`; the greedy choice after each of its last tokens."""
        logits = self.model(torch.tensor([text[self.seen :]]), None, self.cache, self.seen)
        self.seen = len(text)
        found: list[int] = logits[0, -last:].argmax(-1).tolist()
        return found

    def forget(self, length: int) -> None:
        self.seen = min(self.seen, length)


@torch.inference_mode()
def speculate(target: Llama, draft: Llama, prompt: list[int], max_tokens: int, draft_length: int) -> Counts:
    room = len(prompt) + max_tokens + draft_length + 1
    verifier, drafter = Reader(target, room), Reader(draft, room)
    counts, text = Counts(), list(prompt)
    while len(counts.output) < max_tokens and EOS_ID not in counts.output[-1:]:
        proposal = list(text)
        for _ in range(draft_length):
            proposal += drafter.choices(proposal, 1)
        drafted = proposal[len(text) :]
        wanted = verifier.choices(proposal, draft_length + 1)
        kept = _count_round(counts, drafted, wanted, max_tokens - len(counts.output))
        counts.output += kept
        text += kept
        # The newest token is unread, and so is everything behind a rejection.
        verifier.forget(len(text) - 1)
        drafter.forget(len(text) - 1)
    return counts


def _count_round(counts: Counts, drafted: list[int], wanted: list[int], room: int) -> list[int]:
    """Add one round and return its tokens; what an end cuts off was neither tested nor kept."""
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == wanted[accepted]:
        accepted += 1
    kept = wanted[: accepted + 1][:room]
    if EOS_ID in kept:
        kept = kept[: kept.index(EOS_ID) + 1]
    rejected = len(kept) == accepted + 1 and accepted < len(drafted)
    accepted = min(accepted, len(kept))
    counts.rounds += 1
    counts.drafted += len(drafted)
    counts.accepted += accepted
    counts.tested += accepted + int(rejected)
    return kept
