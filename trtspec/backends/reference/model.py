"""A decoder on the TensorRT-LLM layout: one forward pass over a ragged batch of token runs.

All tokens of a step are stacked for the linears; attention runs sequence by sequence over exactly its own cache, which
costs a CPU no more than a padded batch and makes a sequence's result independent of its neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trtspec.backends.reference.attention import LEAST_KEYS, LEAST_ROWS, covered
from trtspec.backends.reference.cache import KVCache
from trtspec.backends.reference.config import ComputeDtype, LinearKind, ModelConfig
from trtspec.backends.reference.forward import compiled
from trtspec.backends.reference.frequencies import Rope
from trtspec.backends.reference.loader import layer_kinds, load_forward

DTYPES: dict[ComputeDtype, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KEPT_MASKS = 33
"""Masks of runs shorter than this are kept: verify steps come again and again, prompts do not."""


@dataclass(frozen=True)
class Feed:
    """Tokens for one slot from position `start`; the last `wanted` of them ask for logits."""

    slot: int
    start: int
    tokens: Sequence[int]
    wanted: int


class Model:
    """The model with its cache. Not thread-safe: one thread steps it."""

    def __init__(
        self, config: ModelConfig, folder: Path, dtype: ComputeDtype, kind: LinearKind, cache: KVCache
    ) -> None:
        self.config, self.cache = config, cache
        self.boundary = Rope.of(config, folder).boundary
        """longrope: longer sequences are turned by another set; None for other models"""
        self._group = config.heads // config.kv_heads
        self._windows = [window for window, _ in layer_kinds(config)]
        self._masks: dict[tuple[int, int | None], Tensor] = {}
        self._unused = torch.empty(0)
        self._all = torch.empty(0, dtype=torch.long)
        self._forward, self.compiled = compiled(load_forward(config, folder, DTYPES[dtype], kind, cache))
        self._warm_up()

    def step(self, feeds: Sequence[Feed], long: Collection[int] = ()) -> npt.NDArray[np.float32]:
        """Run all feeds; [sum of wanted, vocab] float32 logits, in the order of the feeds.

        `long`: slots whose sequences are turned by longrope's long set.
        """
        tokens: list[int] = []
        turns: list[int] = []
        rows: list[int] = []
        lengths = [len(feed.tokens) for feed in feeds]
        for feed, length in zip(feeds, lengths, strict=True):
            tokens += feed.tokens
            turn = feed.start + self.cache.length if feed.slot in long else feed.start
            turns += range(turn, turn + length)
            base = self.cache.first_row(feed.slot)
            rows += range(base + feed.start, base + feed.start + length)
        seen = [feed.start + length for feed, length in zip(feeds, lengths, strict=True)]
        covers = [covered(until) for until in seen]
        masks = [
            [self._mask(*run, window) for run in zip(lengths, seen, covers, strict=True)] for window in self._windows
        ]
        wanted = self._all
        if any(feed.wanted != length for feed, length in zip(feeds, lengths, strict=True)):
            ends = accumulate(lengths)
            chosen = [row for feed, end in zip(feeds, ends, strict=True) for row in range(end - feed.wanted, end)]
            wanted = _integers(chosen or [0])  # an empty selection means all of them; take one and drop it
        plan = _integers((tokens, turns, rows))
        logits: npt.NDArray[np.float32] = self._forward(
            plan, lengths, [feed.slot for feed in feeds], covers, masks, wanted
        ).numpy()
        return logits[: sum(feed.wanted for feed in feeds)]

    def _mask(self, length: int, seen: int, cover: int, window: int | None) -> Tensor:
        """[at least group · length, cover]: token i sees the last `window` of the positions up to seen - length + i.

        Empty for one token that sees all that it covers.
        """
        if length == 1 and cover == seen and (window is None or seen <= window):
            return self._unused
        whole = self._masks.get((length, window))
        if whole is None:
            columns = self.cache.length + LEAST_KEYS
            one = torch.full((length, columns), -torch.inf).triu(self.cache.length - length + 1)
            if window is not None:
                one += torch.full((length, columns), -torch.inf).tril(self.cache.length - length - window)
            whole = one.repeat(max(self._group, -(-LEAST_ROWS // length)), 1)
            if length < KEPT_MASKS:
                self._masks[length, window] = whole
        first = self.cache.length - seen
        return whole[:, first : first + cover]

    def _warm_up(self) -> None:
        """Compile and touch everything before the first request waits for it: one token, and a short run."""
        for _ in range(3):
            self.step([Feed(0, 0, [0], 1)])
            self.step([Feed(0, 0, [0, 0], 1), Feed(0, 0, [0], 1)])


def _integers(values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """Through numpy, which reads lists three to four times as fast as torch does."""
    return torch.from_numpy(np.array(values, np.int64))
