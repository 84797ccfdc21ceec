"""Texts of the target's own, on disk and in batches. numpy only.

A shard is one safetensors file: `ids` int32, all texts one after the other; `lengths`, `prompts` and `limits` int32
[texts]: tokens of each text, of its prompt, and of the longest answer that was asked for; and, where the target's
likeliest tokens were kept, `top_ids` int32 and `top_logprobs` float16 [answer tokens, k] of all answers one after the
other. It is written when its last text is done and appears whole, so that a killed run goes on with the next shard.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from trtspec.errors import BuildError, ModelFileError

Ints = NDArray[np.integer[Any]]
BUCKET = 16
"""Batches whose texts are sorted by length together: little padding, and still another order every epoch."""


@dataclass(frozen=True, eq=False)
class Text:
    """One prompt with the target's answer; `prompt` counts the prompt's tokens. The answer holds its end token."""

    ids: Ints
    prompt: int
    limit: int = 0
    """Longest answer that was asked for, in tokens."""
    top_ids: Ints | None = None
    """[answer, k] the target's k likeliest tokens at each answer position; None when they were not kept."""
    top_logprobs: NDArray[np.floating[Any]] | None = None
    """[answer, k] their log-probabilities, at the temperature that the draft is trained at."""

    @property
    def answer(self) -> Ints:
        """Tokens after the prompt."""
        return self.ids[self.prompt :]


def write_shard(path: Path, texts: Sequence[Text]) -> None:
    """Write beside and rename. BuildError: the disk."""
    arrays: dict[str, NDArray[Any]] = {
        "ids": np.concatenate([text.ids for text in texts]).astype(np.int32),
        "lengths": np.array([len(text.ids) for text in texts], np.int32),
        "prompts": np.array([text.prompt for text in texts], np.int32),
        "limits": np.array([text.limit for text in texts], np.int32),
    }
    kept = [(t.top_ids, t.top_logprobs) for t in texts if t.top_ids is not None and t.top_logprobs is not None]
    if kept:
        arrays["top_ids"] = np.concatenate([ids for ids, _ in kept]).astype(np.int32)
        arrays["top_logprobs"] = np.concatenate([logprobs for _, logprobs in kept]).astype(np.float16)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(arrays, beside)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BuildError(f"writing texts failed: {error.strerror}", where=path) from None


def read_shard(path: Path) -> list[Text]:
    """The texts of one shard; ModelFileError when it is damaged."""
    try:
        arrays = load_file(path)
        ends = np.cumsum(arrays["lengths"])
        prompts, limits = arrays["prompts"].tolist(), arrays["limits"].tolist()
        answers = np.cumsum(arrays["lengths"] - arrays["prompts"])
        ids = np.split(arrays["ids"], ends[:-1])
        top = [np.split(arrays[name], answers[:-1]) if name in arrays else None for name in ("top_ids", "top_logprobs")]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ModelFileError(f"not a shard of texts: {error}", where=path, fix="remove it and run again") from None
    return [
        Text(ids[i], prompts[i], limits[i], top[0][i] if top[0] else None, top[1][i] if top[1] else None)
        for i in range(len(prompts))
    ]


def shard_path(folder: Path, number: int) -> Path:
    """Where shard `number` is."""
    return folder / f"texts-{number:06d}.safetensors"


def tokens_of(texts: Iterable[Text]) -> int:
    """Answer tokens: what the draft is trained on."""
    return sum(len(text.answer) for text in texts)


class Batches:
    """`batch(step)`: the texts of a step, a pure function of the seed and the step, so that a resume skips nothing."""

    def __init__(self, texts: Sequence[Text], rows: int, seed: int) -> None:
        if not texts:
            raise BuildError("there are no texts to train on", fix="give more prompts, or raise --tokens")
        self._texts, self._rows, self._seed = texts, rows, seed
        self._epoch, self._order = -1, list[list[int]]()

    @property
    def per_epoch(self) -> int:
        """Steps after which every text was seen once."""
        return -(-len(self._texts) // self._rows)

    def batch(self, step: int) -> list[Text]:
        """Texts of about the same length."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        return [self._texts[i] for i in self._order[place]]

    def _shuffled(self, epoch: int) -> list[list[int]]:
        rng = random.Random(f"{self._seed}:{epoch}")  # noqa: S311 (not for secrets)
        order = rng.sample(range(len(self._texts)), len(self._texts))
        width = self._rows * BUCKET
        batches = []
        for start in range(0, len(order), width):
            near = sorted(order[start : start + width], key=lambda i: len(self._texts[i].ids))
            batches += [near[at : at + self._rows] for at in range(0, len(near), self._rows)]
        rng.shuffle(batches)
        return batches
