"""What a checkpoint's config.json and scales claim, against what its model says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trtspec.checkpoint.formats import CHANNEL, INPUT, KV_SCALE, WEIGHT, WEIGHT_2
from trtspec.checkpoint.readback import Checkpoint
from trtspec.errors import ModelFileError

OWN = (
    *("producer", "quantization", "mapping", "architecture", "logits_dtype"),
    *("use_parallel_embedding", "embedding_sharding_dim", "share_embedding_table"),
)
"""Keys that are the checkpoint's own business."""
NEEDED = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_size", "norm_epsilon", "max_position_embeddings", "rotary_base", "rotary_scaling"),
    *("hidden_act", "position_embedding_type", "moe", "query_pre_attn_scalar", "rope_local_base_freq"),
    *("attn_logit_softcapping", "final_logit_softcapping", "_sliding_window_pattern", "moe_intermediate_size"),
)
"""Keys without which a loader would take a default of its own."""
LAYOUT = ("world_size", "tp_size", "pp_size", "cp_size", "moe_tp_size", "moe_ep_size")
"""Keys of `mapping` that must agree with one another, as TensorRT-LLM's Mapping asserts."""
LLAMAS = {"LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"}
"""Architectures that TensorRT-LLM loads with one class (models/__init__.py, MODEL_MAP)."""


@dataclass(frozen=True)
class Claim:
    """One key that is not as the model says."""

    key: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        return f"{self.key} is {json.dumps(self.found)}, the model says {json.dumps(self.expected)}"


def wrong_claims(expected: Mapping[str, Any], held: Mapping[str, Any]) -> list[Claim]:
    """Keys of config.json that contradict the model, or are absent though a loader needs them."""
    wanted = json.loads(json.dumps(dict(expected)))
    found = []
    for key, value in wanted.items():
        absent = held.get(key) is None
        if key in OWN or (absent and (value is None or key not in NEEDED)):
            continue
        if absent or not _same(value, held[key]):
            found.append(Claim(key, value, held.get(key)))
    architecture = held.get("architecture")
    if architecture != wanted["architecture"] and not {str(architecture), wanted["architecture"]} <= LLAMAS:
        found.append(Claim("architecture", wanted["architecture"], architecture))
    mapping = held.get("mapping") or {}
    differing = [key for key in LAYOUT if mapping.get(key, wanted["mapping"][key]) != wanted["mapping"][key]]
    return found + [Claim(f"mapping.{key}", wanted["mapping"][key], mapping[key]) for key in differing]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same(one.get(k), other.get(k)) for k in {*one, *other} - {"type"})
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-12)
    return bool(one == other)


def broken_scales(checkpoint: Checkpoint) -> Iterator[str]:
    """Scales that cannot be any calibration's: absent, not finite, not above zero. What they should be, no source says.

    ModelFileError: the format is not known.
    """
    fmt = checkpoint.format
    if checkpoint.quantization.get("has_zero_point"):
        yield "config.json says has_zero_point, and no zero points are read"
    for name in checkpoint.names:
        linear, _, suffix = name.rpartition(".")
        if suffix == KV_SCALE:
            yield from _not_the_larger(checkpoint, linear)
        if suffix == "weight" and checkpoint.is_quantized(linear):
            yield from (f"{linear}.{s} is absent" for s in fmt.names if f"{linear}.{s}" not in checkpoint.pieces)
        elif suffix in (WEIGHT, WEIGHT_2, CHANNEL, INPUT) or suffix.endswith(KV_SCALE):
            yield from _not_positive(checkpoint, name)


def _not_the_larger(checkpoint: Checkpoint, attention: str) -> Iterator[str]:
    """Where K, V and both have a scale, the last is the larger of the first two: engines read one or the others."""
    names = [f"{attention}.{kind}_cache_scaling_factor" for kind in ("k", "v")]
    if all(name in checkpoint.pieces for name in names):
        larger = max(float(checkpoint.scale(name).reshape(-1)[0]) for name in names)
        if float(checkpoint.scale(f"{attention}.{KV_SCALE}").reshape(-1)[0]) != larger:
            yield f"{attention}.{KV_SCALE} is not the larger of those of keys and values, {larger:g}"


def _not_positive(checkpoint: Checkpoint, name: str) -> Iterator[str]:
    try:
        held = checkpoint.scale(name)
    except ModelFileError as error:
        yield f"{name}: {error.what}"
        return
    bad = int((~np.isfinite(held) | (held < 0)).sum())
    # A block or row of zeros may have the scale 0; a scale of inputs may not.
    if held.size == 1 and not bad and float(held.reshape(-1)[0]) == 0.0:
        bad = 1
    if bad:
        yield f"{name}: {bad} of {held.size} scales are not numbers above zero"
