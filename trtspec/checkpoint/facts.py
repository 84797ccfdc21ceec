"""What config.json says about a model, in one spelling, strictly typed.

transformers 4 writes `torch_dtype`, `rope_theta` and `rope_scaling` (with `type` or `rope_type` inside);
transformers 5 writes `dtype` and `rope_parameters`. Both are read; a file that says one
thing twice must say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.jsonfile import Keys, read_object
from trtspec.errors import ModelFileError

CONFIG = "config.json"
DTYPES = ("float16", "bfloat16", "float32")
TIED_BY_DEFAULT = ("gemma",)
"""Prefixes of the model types whose configuration ties embeddings unless it says otherwise."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: base θ, scaling type (`default` = none) and the parameters of that type."""

    theta: float
    type: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ModelFacts:
    """One model's configuration. Sizes are counts; `vocab_size` counts rows, padding included."""

    path: Path
    architecture: str
    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    norm_epsilon: float
    hidden_act: str
    rope: Rope
    tie_word_embeddings: bool
    attention_bias: bool
    mlp_bias: bool
    dtype: str | None
    """Type that config.json names; the weights may be stored in another."""
    quantization: str | None
    """`quant_method` of weights that are quantized already."""
    bos_ids: tuple[int, ...]
    eos_ids: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path) -> ModelFacts:
        """Facts of the model in `folder`. ModelFileError names file and key."""
        return cls.parse(read_config(folder), folder / CONFIG)

    @classmethod
    def parse(cls, data: Mapping[str, Any], path: Path) -> ModelFacts:
        """Facts from the content of a config.json; `path` only names it in errors."""
        keys = Keys(data, path)
        model_type = keys.text("model_type")
        heads = keys.integer("num_attention_heads")
        hidden = keys.integer("hidden_size")
        kv_heads = _kv_heads(keys, heads)
        return cls(
            path=path,
            architecture=architecture_of(data, path),
            model_type=model_type,
            vocab_size=keys.integer("vocab_size"),
            hidden_size=hidden,
            intermediate_size=keys.integer("intermediate_size"),
            num_hidden_layers=keys.integer("num_hidden_layers", most=10_000),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=_head_dim(keys, hidden, heads),
            max_position_embeddings=keys.integer("max_position_embeddings"),
            norm_epsilon=keys.number("rms_norm_eps", 1e-6),
            hidden_act=keys.text("hidden_act", "silu"),
            rope=_rope(keys),
            tie_word_embeddings=keys.flag("tie_word_embeddings", model_type.startswith(TIED_BY_DEFAULT)),
            attention_bias=keys.flag("attention_bias", False),
            mlp_bias=keys.flag("mlp_bias", False),
            dtype=_dtype(keys),
            quantization=_quantization(keys),
            bos_ids=keys.ids("bos_token_id"),
            eos_ids=keys.ids("eos_token_id"),
        )


def read_config(folder: Path) -> dict[str, Any]:
    """The content of the folder's config.json, unchecked; ModelFileError when there is none."""
    if not folder.is_dir():
        raise ModelFileError("no such model folder", where=folder, fix="check `path` in the configuration")
    return read_object(folder / CONFIG, fix="a model folder in Hugging Face layout has a config.json")


def architecture_of(data: Mapping[str, Any], path: Path) -> str:
    """The one class name in `architectures`; ModelFileError otherwise."""
    keys = Keys(data, path)
    value = keys.data.get("architectures")
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], str):
        raise keys.wrong("architectures", "does not name one architecture", 'a list such as ["LlamaForCausalLM"]')
    return value[0]


def _kv_heads(keys: Keys, heads: int) -> int:
    kv_heads = keys.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise keys.wrong("num_key_value_heads", f"does not divide the {heads} attention heads")
    return kv_heads


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    if not keys.has("head_dim") and hidden % heads:
        raise keys.wrong("hidden_size", f"is not divisible by {heads} attention heads, and head_dim is not given")
    head_dim = keys.integer("head_dim", max(1, hidden // heads))
    if head_dim % 2:
        raise keys.wrong("head_dim", "is odd; rotary embedding turns pairs", "an even number")
    return head_dim


def _dtype(keys: Keys) -> str | None:
    old, new = (keys.text(k) if keys.has(k) else None for k in ("torch_dtype", "dtype"))
    if old and new and old != new:
        raise keys.wrong("dtype", f"disagrees with torch_dtype {old!r}")
    name = new or old
    if name is not None and name not in DTYPES:
        raise keys.wrong("dtype" if new else "torch_dtype", "is not a known type", " | ".join(DTYPES))
    return name


def _quantization(keys: Keys) -> str | None:
    block = keys.block("quantization_config")
    return None if block is None else block.text("quant_method", "unnamed")


def _rope(keys: Keys) -> Rope:
    """Merge the two spellings; where both stand in one file, they must agree."""
    old, new = keys.block("rope_scaling"), keys.block("rope_parameters")
    theta = keys.number("rope_theta", 10000.0)
    if new is None:
        return _rope_of(old, theta)
    if any(isinstance(value, dict) for value in new.data.values()):
        # One set per layer type (Gemma 3). No supported family has it yet; the family's rules refuse it by this name.
        return Rope(theta, "per-layer-type", dict(new.data))
    rope = _rope_of(new, new.number("rope_theta", theta))
    if keys.has("rope_theta") and rope.theta != theta:
        raise keys.wrong("rope_theta", f"disagrees with rope_parameters.rope_theta {rope.theta:g}")
    if old is not None and _rope_of(old, rope.theta) != rope:
        raise keys.wrong("rope_scaling", "disagrees with rope_parameters")
    return rope


def _rope_of(block: Keys | None, theta: float) -> Rope:
    if block is None:
        return Rope(theta, "default", {})
    old, new = (block.text(k) if block.has(k) else None for k in ("type", "rope_type"))
    if old and new and old != new:
        raise block.wrong("rope_type", f"disagrees with type {old!r}")
    names = ("type", "rope_type", "rope_theta")
    parameters = {k: v for k, v in block.data.items() if k not in names and v is not None}
    return Rope(theta, new or old or "default", parameters)
