"""Undo the split over tensor-parallel ranks: the pieces of one checkpoint tensor back into the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from trtspec.checkpoint.codecs import Codes

Split = Literal["qkv", "stacked", "rows", "columns", "vocabulary", "same"]
"""qkv: [Q; K; V] of each rank's heads. stacked: two halves by rows, each of them split. vocabulary: rows, padded."""

_BY_ROWS, _BY_COLUMNS = ("attention.qkv", "mlp.fc", "mlp.gate"), ("attention.dense", "mlp.proj")
_OF_ROWS = ("weight", "bias", "weights_scaling_factor", "per_channel_scale")


def merged(name: str, pieces: Sequence[Codes], config: Mapping[str, Any], *, experts: bool, packed: int = 1) -> Codes:
    """The whole tensor from one piece per tensor-parallel rank, in rank order.

    `experts` tells that its linear holds the experts of a mixture, the first axis; `packed` is 2 where a stored row
    holds two (INT4). Duplicated KV heads are taken once; rows that pad the vocabulary are cut off.
    ValueError when the pieces cannot be parts of one tensor.
    """
    split = split_of(name, pieces, config, experts=experts, packed=packed)
    if split != "vocabulary" and any(p.shape != pieces[0].shape or p.dtype != pieces[0].dtype for p in pieces):
        raise ValueError("the ranks' pieces differ in shape or type")
    if split == "vocabulary":
        return np.concatenate(pieces)[: int(config["vocab_size"])]
    if split == "same":
        if not name.endswith(".bias") and any(p.tobytes() != pieces[0].tobytes() for p in pieces[1:]):
            raise ValueError("the ranks' copies differ")
        return pieces[0]
    if split == "columns":
        return np.concatenate(pieces, axis=-1)
    if split == "qkv":
        return _heads(pieces, config)
    axis = 1 if experts else 0
    if split == "rows":
        return np.concatenate(pieces, axis=axis)
    halves = [np.split(piece, 2, axis=axis) for piece in pieces]
    return np.concatenate([half[i] for i in (0, 1) for half in halves], axis=axis)


def split_of(name: str, pieces: Sequence[Codes], config: Mapping[str, Any], *, experts: bool, packed: int) -> Split:
    """How the tensor `name` was split; see :func:`merged`."""
    linear, _, suffix = name.rpartition(".")
    kind = linear.split(".", 3)[3] if linear.startswith("transformer.layers.") else linear
    shape = pieces[0].shape
    if kind == "lm_head":
        return "vocabulary"
    if kind == "transformer.vocab_embedding":
        return _embedding(config)
    if kind in _BY_COLUMNS:
        return _row_parallel(suffix, shape, experts)
    if kind not in _BY_ROWS or suffix not in _OF_ROWS or _is_one_scale(shape, experts):
        return "same"
    if kind == "attention.qkv":
        return "qkv"
    return "stacked" if kind == "mlp.fc" and _is_stacked(shape, len(pieces), config, experts, packed) else "rows"


def _embedding(config: Mapping[str, Any]) -> Split:
    if not config.get("use_parallel_embedding"):
        return "same"
    return "columns" if config.get("embedding_sharding_dim") == 1 else "vocabulary"


def _row_parallel(suffix: str, shape: tuple[int, ...], experts: bool) -> Split:
    """attention.dense and mlp.proj are split by their inputs: what belongs to outputs is on every rank."""
    if suffix == "prequant_scaling_factor":
        return "columns"
    if suffix in ("weight", "weights_scaling_factor") and len(shape) > 1 and not _is_one_scale(shape, experts):
        return "columns"
    return "same"


def _is_one_scale(shape: tuple[int, ...], experts: bool) -> bool:
    """One number for the tensor, or one for each expert: [], [1], [E, 1]."""
    return shape in ((), (1,)) or (experts and len(shape) == 2 and shape[1] == 1)


def _is_stacked(shape: tuple[int, ...], ranks: int, config: Mapping[str, Any], experts: bool, packed: int) -> bool:
    """mlp.fc holds up and gate together: experts always do, Phi-3 does; seen by the number of rows."""
    inner = config.get("moe_intermediate_size") if experts else None
    return shape[1 if experts else 0] * packed * ranks == 2 * int(inner or config.get("intermediate_size") or 0)


def _heads(pieces: Sequence[Codes], config: Mapping[str, Any]) -> Codes:
    """[Q; K; V] of all heads. With more ranks than KV heads each is on several ranks in a row; the first is taken."""
    ranks, heads = len(pieces), int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    kv, copies = max(1, kv_heads // ranks), max(1, ranks // kv_heads)
    units = heads // ranks + 2 * kv
    if pieces[0].shape[0] % units:
        raise ValueError(f"{pieces[0].shape[0]} rows are not those of {units} heads")
    unit = pieces[0].shape[0] // units
    cuts = [heads // ranks * unit, (heads // ranks + kv) * unit]
    parts = [np.split(piece, cuts) for piece in pieces]
    return np.concatenate([p[0] for p in parts] + [p[i] for i in (1, 2) for p in parts[::copies]])
