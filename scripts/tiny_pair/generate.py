"""Texts of the target's own, for distilling the draft on what it will meet when decoding."""

# The project's mypy does not look into torch.
# mypy: allow-untyped-decorators
from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from trtspec.store import write_atomic

from .data import Piece
from .model import EOS_ID, PAD_ID, Cache, Llama

BATCH = 96
NEW_TOKENS = 96
RAW_PROMPT_TOKENS = 100
COUNT = 800


def own_texts(target: Llama, pieces: list[Piece], path: Path, count: int = COUNT) -> list[Piece]:
    """Greedy continuations of training prompts, kept in the file `path` for a resumed run."""
    if path.exists():
        saved: list[tuple[list[int], int]] = json.loads(path.read_text(encoding="utf-8"))
        return [Piece(ids, prompt) for ids, prompt in saved]
    prompts = [_prompt_of(piece) for piece in pieces]
    step = max(1, len(prompts) // count)
    # Sorted by length: little padding within a batch.
    chosen = sorted((p for p in prompts[::step] if p), key=len)
    texts: list[Piece] = []
    for start in range(0, len(chosen), BATCH):
        batch = chosen[start : start + BATCH]
        for prompt, answer in zip(batch, continue_greedily(target, batch), strict=True):
            texts.append(Piece(prompt + answer, len(prompt)))
        print(f"own texts: {len(texts)} of {len(chosen)}", flush=True)
    write_atomic(path, json.dumps([(text.ids, text.prompt) for text in texts]))
    return texts


def _prompt_of(piece: Piece) -> list[int]:
    """A chat piece up to its answer; a raw piece up to a few lines in, or nothing if short."""
    if piece.prompt > 1:
        return piece.ids[: piece.prompt]
    return piece.ids[:RAW_PROMPT_TOKENS] if len(piece.ids) > RAW_PROMPT_TOKENS else []


@torch.inference_mode()
def continue_greedily(model: Llama, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy answers with their end token, prompts padded on the left.

    Rotary positions only enter as differences, so a shifted prompt decodes the same.
    """
    width = max(map(len, prompts))
    padded = [[PAD_ID] * (width - len(p)) + p for p in prompts]
    ids = torch.tensor(padded)
    padding = (torch.arange(width) < torch.tensor([[width - len(p)] for p in prompts])) * -1e4
    cache = Cache(model.shape, len(prompts), width + NEW_TOKENS, torch.bfloat16)
    answers: list[Tensor] = []
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    start = 0
    while len(answers) < NEW_TOKENS and not ended.all():
        mask = _mask(padding, ids.shape[1], start)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids, mask, cache, start)[:, -1]
        chosen = logits.argmax(-1).masked_fill(ended, PAD_ID)
        ended |= chosen == EOS_ID
        answers.append(chosen)
        start, ids = start + ids.shape[1], chosen[:, None]
    rows: list[list[int]] = torch.stack(answers, dim=1).tolist()
    return [[token for token in row if token != PAD_ID] for row in rows]


def _mask(padding: Tensor, length: int, start: int) -> Tensor:
    """Causal, and blind to the padding; shaped [batch, 1, 1, length, seen]."""
    seen = start + length
    causal = torch.full((length, seen), -1e4).triu(start + 1)
    hidden = torch.nn.functional.pad(padding, (0, seen - padding.shape[1]))
    return (causal + hidden[:, None, :])[:, None, None]
