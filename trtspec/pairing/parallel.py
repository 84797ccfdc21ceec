"""Can a model be split over so many GPUs? Heads, key-value heads, MLP columns, scale groups, layers."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.formats import FORMATS

GROUPS = (128, 64)
"""Group sizes that TensorRT-LLM's INT4 kernels have; W4A8 knows 128 only."""


def split_problems(facts: ModelFacts, tensor: int, weights: str = "none", group: int | None = None) -> list[str]:
    """Why `tensor` GPUs cannot share every layer; empty when they can. `group`: columns per scale, where there are."""
    return [*_heads(facts, tensor), *_columns(facts, tensor), *_groups(facts, tensor, weights, group)]


def _heads(facts: ModelFacts, tensor: int) -> Iterator[str]:
    heads, kv = facts.num_attention_heads, facts.num_key_value_heads
    if heads % tensor:
        yield f"{heads} attention heads are not divisible by {tensor}"
    if kv % tensor and tensor % kv:
        yield f"{kv} key-value heads can be neither split nor copied evenly over {tensor}"


def _inner(facts: ModelFacts) -> dict[str, int]:
    """Columns of the MLPs there are."""
    found = {}
    if facts.moe is None or not all(facts.moe.layers):
        found["intermediate size"] = facts.intermediate_size
    if facts.moe is not None:
        found["intermediate size of an expert"] = facts.moe.intermediate_size
    return found


def _columns(facts: ModelFacts, tensor: int) -> Iterator[str]:
    for name, size in _inner(facts).items():
        if size % tensor:
            yield f"{name} {size:,} is not divisible by {tensor}"


def _groups(facts: ModelFacts, tensor: int, weights: str, group: int | None) -> Iterator[str]:
    group = group or FORMATS[weights].group_size
    if group is None:
        return
    columns = {"hidden size": facts.hidden_size}
    split = {"attention output": facts.num_attention_heads * facts.head_dim, **_inner(facts)}
    columns |= {f"{name} {size:,} ÷ {tensor}": size // tensor for name, size in split.items() if size % tensor == 0}
    for name, size in columns.items():
        if size % group:
            shown = f"{name} = {size:,}" if "÷" in name else f"{name} {size:,}"
            yield f"{shown} columns are not whole groups of {group}"


def copied_heads(facts: ModelFacts, tensor: int) -> int:
    """On how many GPUs each key-value head lies."""
    return max(1, tensor // facts.num_key_value_heads)


def tensor_sizes(facts: ModelFacts, most: int, weights: str = "none", group: int | None = None) -> list[int]:
    """Every tensor-parallel size up to `most` that works."""
    return [size for size in range(1, most + 1) if not split_problems(facts, size, weights, group)]


def group_sizes(facts: ModelFacts, tensor: int, weights: str) -> list[int]:
    """Group sizes that work for this format and tensor-parallel size."""
    known = GROUPS[:1] if weights == "w4a8_awq" else GROUPS
    return [size for size in known if not split_problems(facts, tensor, weights, size)]
