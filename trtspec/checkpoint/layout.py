"""Which part of the model each rank holds: tensor parallelism cuts matrices, pipeline parallelism cuts layers.

rank = pipeline stage × tensor size + tensor rank (TensorRT-LLM, mapping.py). Layers go to stages as
torch.tensor_split does, the first stages taking one more (`Mapping.pp_layers`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import Part, Rule
from trtspec.checkpoint.header import TensorInfo
from trtspec.checkpoint.pieces import Piece, PieceTensor, Zeros
from trtspec.errors import ConfigError

EVEN_BEFORE = 1
"""TensorRT-LLM before this major version asserts that the stages divide the layers."""


@dataclass(frozen=True)
class Layout:
    """Sizes of the two kinds of parallelism."""

    tensor: int = 1
    pipeline: int = 1

    @property
    def ranks(self) -> int:
        """Number of rank files."""
        return self.tensor * self.pipeline

    def layers(self, count: int, stage: int) -> range:
        """Layers of the model that a pipeline stage holds."""
        share, extra = divmod(count, self.pipeline)
        begin = stage * share + min(stage, extra)
        return range(begin, begin + share + (stage < extra))

    def mapping(self) -> dict[str, int]:
        """`mapping` of config.json. TensorRT-LLM checks that moe_tp_size × moe_ep_size is tp_size, experts or not."""
        return {
            "world_size": self.ranks,
            "tp_size": self.tensor,
            "pp_size": self.pipeline,
            "cp_size": 1,
            "gpus_per_node": 8,
            "moe_tp_size": self.tensor,
            "moe_ep_size": 1,
        }


def check_layout(facts: ModelFacts, layout: Layout, version: str | None) -> None:
    """ConfigError when the model cannot be cut so, by any version or by the one given (`1.2.1`)."""
    tp, pp, layers = layout.tensor, layout.pipeline, facts.num_hidden_layers
    if tp < 1 or pp < 1:
        raise ConfigError(
            "parallelism is below 1", found=f"tensor {tp}, pipeline {pp}", expected="whole numbers from 1"
        )
    for what, count in _divided(facts):
        if count % tp:
            raise _uncut("tensor", tp, f"does not divide the {count} {what}", facts)
    kv = facts.num_key_value_heads
    if kv % tp and tp % kv:
        raise _uncut("tensor", tp, f"and the {kv} key-value heads do not divide one another", facts)
    if pp > layers:
        raise _uncut("pipeline", pp, f"is above the {layers} layers", facts)
    if layers % pp and version is not None and _major(version) < EVEN_BEFORE:
        raise _uncut(
            "pipeline", pp, f"does not divide the {layers} layers, which TensorRT-LLM {version} demands", facts
        )


def _divided(facts: ModelFacts) -> Iterator[tuple[str, int]]:
    yield "attention heads", facts.num_attention_heads
    if facts.moe is None or not all(facts.moe.layers):
        yield "intermediate columns", facts.intermediate_size
    if facts.moe is not None:
        yield "intermediate columns of an expert", facts.moe.intermediate_size


def _uncut(kind: str, size: int, why: str, facts: ModelFacts) -> ConfigError:
    return ConfigError(f"parallelism.{kind} {size} {why}", where=facts.path, fix=f"choose another parallelism.{kind}")


def _major(version: str) -> int:
    found = re.match(r"\d+", version)
    return int(found[0]) if found else EVEN_BEFORE


def rank_tensor(rule: Rule, sources: Mapping[str, TensorInfo], dtype: str, cut: Cut) -> PieceTensor:
    """The tensor of one rank: every part's share, one after the other."""
    pieces = tuple(piece for part in rule.parts for piece in cut.pieces(part, sources[part.name]))
    return PieceTensor(
        rule.named(cut.first_layer),
        rule.dtype or dtype,
        _shape(rule, pieces),
        pieces,
        rule.plus_one,
        rule.named(0),
    )


def _shape(rule: Rule, pieces: tuple[Piece | Zeros, ...]) -> tuple[int, ...]:
    elements = sum(piece.elements for piece in pieces)
    if len(rule.parts[0].shape) == 1:
        return (elements,)
    columns = next((p.columns[1] - p.columns[0] for p in pieces if isinstance(p, Piece)), rule.parts[0].shape[-1])
    rows = elements // columns
    return (rule.stacked, rows // rule.stacked, columns) if rule.stacked else (rows, columns)


@dataclass(frozen=True)
class Cut:
    """What one rank takes."""

    tensor: int
    """Tensor-parallel size."""
    rank: int
    """Tensor-parallel rank."""
    first_layer: int = 0

    def pieces(self, part: Part, source: TensorInfo) -> Iterator[Piece | Zeros]:
        """The rank's share of a part."""
        width = math.prod(part.shape[1:])
        begin, end = part.rows or (0, part.shape[0])
        first, last = self._columns(part, width)
        rows, missing = self._rows(part, begin, end)
        if rows[1] > rows[0]:
            yield Piece(source, rows, (first, last), width)
        if missing:
            yield Zeros(missing * width)

    def _columns(self, part: Part, width: int) -> tuple[int, int]:
        if part.split != "columns":
            return 0, width
        share = width // self.tensor
        return self.rank * share, (self.rank + 1) * share

    def _rows(self, part: Part, begin: int, end: int) -> tuple[tuple[int, int], int]:
        """The rank's rows, and how many rows of zeros follow them."""
        count = end - begin
        if part.split == "rows":
            share = count // self.tensor
            return (begin + self.rank * share, begin + (self.rank + 1) * share), 0
        if part.split == "heads":
            return self._heads(part.head, begin, count // part.head), 0
        if part.split == "vocabulary":
            share = -(-count // self.tensor)
            first, last = (min(count, at * share) for at in (self.rank, self.rank + 1))
            return (begin + first, begin + last), share - (last - first)
        return (begin, end), 0

    def _heads(self, size: int, begin: int, count: int) -> tuple[int, int]:
        share = max(1, count // self.tensor)
        # With fewer heads than ranks, tensor // count neighbouring ranks take the same head.
        first = self.rank * share if count >= self.tensor else self.rank // (self.tensor // count)
        return begin + first * size, begin + (first + share) * size
