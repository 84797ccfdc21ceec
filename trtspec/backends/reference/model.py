"""Llama on the TensorRT-LLM layout: one forward pass over a ragged batch of token runs.

All tokens of a step are stacked for the linears; attention runs sequence by sequence over exactly its own cache, which
costs a CPU no more than a padded batch and makes a sequence's result independent of its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trtspec.backends.reference.cache import KVCache
from trtspec.backends.reference.config import ComputeDtype, LinearKind, ModelConfig
from trtspec.backends.reference.forward import LEAST_KEYS, LEAST_ROWS, Forward, compiled, covered, linear_rows
from trtspec.backends.reference.linear import linear_of
from trtspec.backends.reference.rope import interleave, rotations
from trtspec.backends.reference.weights import LayerWeights, WeightFile, open_weights

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


class Llama:
    """The model with its cache. Not thread-safe: one thread steps it."""

    def __init__(
        self, config: ModelConfig, weights: Path, dtype: ComputeDtype, kind: LinearKind, cache: KVCache
    ) -> None:
        self.config, self.cache = config, cache
        self._group = config.heads // config.kv_heads
        self._masks: dict[int, Tensor] = {}
        self._unused = torch.empty(0)
        self._all = torch.empty(0, dtype=torch.long)
        forward = Forward(linear_of(kind))
        with open_weights(weights, config) as file:
            _Loader(config, DTYPES[dtype], forward).load(file)
        forward.rotations = torch.from_numpy(rotations(config, cache.length, weights))
        forward.caches, forward.head_rows = cache.layers, cache.head_rows
        self._forward, self.compiled = compiled(forward)
        self._warm_up()

    def step(self, feeds: Sequence[Feed]) -> npt.NDArray[np.float32]:
        """Run all feeds; [sum of wanted, vocab] float32 logits, in the order of the feeds."""
        tokens: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        lengths = [len(feed.tokens) for feed in feeds]
        for feed, length in zip(feeds, lengths, strict=True):
            tokens += feed.tokens
            positions += range(feed.start, feed.start + length)
            base = self.cache.first_row(feed.slot)
            rows += range(base + feed.start, base + feed.start + length)
        seen = [feed.start + length for feed, length in zip(feeds, lengths, strict=True)]
        covers = [covered(until) for until in seen]
        masks = [
            self._unused if length == 1 and cover == until else self._mask(length, until, cover)
            for length, until, cover in zip(lengths, seen, covers, strict=True)
        ]
        wanted = self._all
        if any(feed.wanted != length for feed, length in zip(feeds, lengths, strict=True)):
            ends = accumulate(lengths)
            wanted = torch.tensor(
                [row for feed, end in zip(feeds, ends, strict=True) for row in range(end - feed.wanted, end)],
                dtype=torch.long,
            )
            if not len(wanted):  # an empty selection means all of them; take one and drop it
                wanted = torch.zeros(1, dtype=torch.long)
        plan = torch.tensor((tokens, positions, rows))
        logits: npt.NDArray[np.float32] = self._forward(
            plan, lengths, [feed.slot for feed in feeds], covers, masks, wanted
        ).numpy()
        return logits[: sum(feed.wanted for feed in feeds)]

    def _mask(self, length: int, seen: int, cover: int) -> Tensor:
        """[at least group · length, cover]: token i sees positions up to seen - length + i."""
        whole = self._masks.get(length)
        if whole is None:
            columns = self.cache.length + LEAST_KEYS
            one = torch.full((length, columns), -torch.inf).triu(self.cache.length - length + 1)
            whole = one.repeat(max(self._group, -(-LEAST_ROWS // length)), 1)
            if length < KEPT_MASKS:
                self._masks[length] = whole
        first = self.cache.length - seen
        return whole[:, first : first + cover]

    def _warm_up(self) -> None:
        """Compile and touch everything before the first request waits for it: one token, and a short run."""
        for _ in range(3):
            self.step([Feed(0, 0, [0], 1)])
            self.step([Feed(0, 0, [0, 0], 1), Feed(0, 0, [0], 1)])


class _Loader:
    """Brings a checkpoint's tensors into the form that Forward computes with."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, forward: Forward) -> None:
        self._config, self._dtype, self._forward = config, dtype, forward

    def load(self, file: WeightFile) -> None:
        c, f = self._config, self._forward
        f.heads, f.kv_heads, f.head_size = c.heads, c.kv_heads, c.head_size
        f.linear_rows = linear_rows(self._dtype, c.memory_bound)
        f.norms, f.weights, f.biases = [], [], []
        f.floor = torch.tensor([math.sqrt(c.norm_epsilon * c.hidden)])
        f.embedding = file.embedding().to(self._dtype)
        f.final_norm = self._norm(file.final_norm())
        f.head = f.linear.pack(file.lm_head().to(self._dtype))
        for index in range(c.layers):
            self._layer(file.layer(index))

    def _layer(self, w: LayerWeights) -> None:
        c = self._config
        turned = (c.heads + c.kv_heads) * c.head_size
        order = torch.arange(c.qkv_rows)
        order[:turned] = torch.from_numpy(interleave(c.heads + c.kv_heads, c.head_size))
        self._forward.norms += [self._norm(w.input_norm), self._norm(w.post_norm)]
        self._linear(w.qkv[order], None if w.qkv_bias is None else w.qkv_bias[order])
        self._linear(w.dense, w.dense_bias)
        self._linear(w.fc, w.fc_bias)
        self._linear(w.gate, w.gate_bias)
        self._linear(w.proj, w.proj_bias)

    def _norm(self, weight: Tensor) -> Tensor:
        return weight.float() * math.sqrt(self._config.hidden)

    def _linear(self, weight: Tensor, bias: Tensor | None) -> None:
        f = self._forward
        f.weights.append(f.linear.pack(weight.to(self._dtype)))
        f.biases.append(None if bias is None else bias.to(self._dtype))
