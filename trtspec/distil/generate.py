"""Have the target write the texts that its draft learns from, and the texts the draft is judged on."""

# The project's mypy does not look into torch.
# mypy: no-warn-return-any, allow-untyped-decorators
from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trtspec.distil.model import Answering, autocast
from trtspec.distil.texts import Text, read_shard, shard_path, tokens_of, write_shard

LEAD = 8
"""From the second answer to a prompt on: so many tokens are drawn before greedy decoding goes on."""
ROUNDS = 64
"""Answers to one prompt at most."""


@dataclass(frozen=True)
class Asked:
    """One prompt in tokens, and the longest answer wanted."""

    ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True)
class Writing:
    """How the target answers: as the deployment does (`temperature` 0 is greedy), and what is kept of it."""

    temperature: float
    end_ids: frozenset[int]
    keep: int
    """Likeliest tokens kept of each position; 0: none, the logits are computed again in training."""
    soften: float = 1.0
    """Temperature of the kept log-probabilities: that of the loss."""
    batch: int = 32
    seed: int = 0
    bfloat16: bool = False


def write_texts(
    model: Any,
    prompts: Sequence[Asked],
    tokens: int,
    folder: Path,
    how: Writing,
    progress: Callable[[int, int], None] | None = None,
) -> list[Text]:
    """Texts with at least `tokens` answer tokens below `folder`, as far as `prompts` give them; shards there are kept.

    With `tokens` 0 each prompt is answered once; else once, then all of them again. A second greedy answer would be
    the first one, so its first `LEAD` tokens are drawn at temperature 1 and the rest is greedy: the draft also has to
    follow where a user leads.
    """
    seen: dict[bytes, Text] = {}
    most = tokens or sum(asked.max_tokens for asked in prompts)
    for number, (turn, chosen) in enumerate(_plan(prompts, how, 1 if not tokens else ROUNDS)):
        done = tokens_of(seen.values())
        if progress is not None:
            progress(min(done, most), most)
        if done >= most:
            break
        path = shard_path(folder, number)
        if not path.exists():
            write_shard(path, answer(model, chosen, how, turn, number))
        for text in read_shard(path):
            # An answer that was written twice teaches nothing new.
            seen.setdefault(text.ids.tobytes(), text)
    return [text for text in seen.values() if len(text.answer)]


def _plan(prompts: Sequence[Asked], how: Writing, turns: int) -> list[tuple[int, list[Asked]]]:
    """(turn, prompts) of every shard; prompts of like length stand together, so that little is padded."""
    shards = []
    for turn in range(turns):
        rng = random.Random(f"{how.seed}:{turn}")  # noqa: S311 (not for secrets)
        order = sorted(prompts, key=lambda asked: len(asked.ids))
        batches = [order[at : at + how.batch] for at in range(0, len(order), how.batch)]
        rng.shuffle(batches)
        shards += [(turn, batch) for batch in batches]
    return shards


def answer(model: Any, prompts: Sequence[Asked], how: Writing, turn: int = 0, number: int = 0) -> list[Text]:
    """The target's answers with their end token; one draw depends on seed, shard and nothing else."""
    device = str(model.device).split(":")[0]
    draw = torch.Generator(device="cpu").manual_seed(hash_of(how.seed, number))
    running, longest = Answering(model, [asked.ids for asked in prompts]), max(asked.max_tokens for asked in prompts)
    chosen: list[Tensor] = []
    kept: list[tuple[Tensor, Tensor]] = []
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    ends = torch.tensor(sorted(how.end_ids) or [-1])
    with autocast(device, how.bfloat16):
        while len(chosen) < longest and not ended.all():
            logits = running.logits().cpu()
            if how.keep:
                kept.append(_likeliest(logits / how.soften, how.keep))
            lead = turn > 0 and len(chosen) < LEAD
            tokens = _next(logits, 1.0 if lead and how.temperature == 0 else how.temperature, draw)
            ended |= torch.isin(tokens, ends)
            chosen.append(tokens)
            running.read(tokens.to(model.device))
    rows = torch.stack(chosen, dim=1).numpy()
    top = [torch.stack(part, dim=1).numpy() for part in zip(*kept, strict=True)] if kept else None
    return [_text(asked, rows[i], top, i, how.end_ids) for i, asked in enumerate(prompts)]


def hash_of(seed: int, number: int) -> int:
    """A seed for each shard, the same in every process."""
    return (seed * 1_000_003 + number) % (1 << 63)


def _likeliest(logits: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    logprobs, ids = torch.log_softmax(logits, dim=-1).topk(min(keep, logits.shape[-1]), dim=-1)
    return ids.to(torch.int32), logprobs.to(torch.float16)


def _next(logits: Tensor, temperature: float, draw: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    return torch.multinomial(torch.softmax(logits / temperature, dim=-1), 1, generator=draw)[:, 0]


def _text(asked: Asked, row: Any, top: list[Any] | None, i: int, end_ids: Collection[int]) -> Text:
    """The row cut behind its end token, or at the length that was asked for."""
    length = min(len(row), asked.max_tokens)
    ends = np.flatnonzero(np.isin(row[:length], sorted(end_ids)))
    length = int(ends[0]) + 1 if len(ends) else length
    ids = np.concatenate([np.array(asked.ids), row[:length]]).astype(np.int32)
    if top is None:
        return Text(ids, len(asked.ids), asked.max_tokens)
    return Text(ids, len(asked.ids), asked.max_tokens, top[0][i, :length], top[1][i, :length])
