"""What config.json says about a model, in one spelling, strictly typed.

transformers 4 writes `torch_dtype`, `rope_theta` and `rope_scaling` (with `type` or `rope_type` inside);
transformers 5 writes `dtype` and `rope_parameters`. Both are read; a file that says one
thing twice must say the same. Of a multimodal model the text part (`text_config`) is described.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.jsonfile import Keys, read_object
from trtspec.checkpoint.layers import Moe, read_moe, read_windows
from trtspec.checkpoint.rope import Rope, read_rope
from trtspec.checkpoint.traits import TEXT_TYPES, Traits, traits_of
from trtspec.errors import ModelFileError

__all__ = ["CONFIG", "DTYPES", "ModelFacts", "Moe", "Rope", "architecture_of", "read_config"]

CONFIG = "config.json"
DTYPES = ("float16", "bfloat16", "float32")


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
    sliding_window: int | None
    """Tokens; None when there is none or config.json switches it off."""
    layer_windows: tuple[int | None, ...]
    """Window of each layer in tokens; None: the layer sees everything before it."""
    rope_local: Rope | None
    """Rope of the windowed layers, where it is another one (Gemma 3)."""
    partial_rotary_factor: float
    """Share of each head that is turned, in (0, 1]."""
    original_max_position_embeddings: int | None
    qkv_bias: bool
    dense_bias: bool
    """Bias on the attention's output projection."""
    qk_norm: bool
    moe: Moe | None
    attn_softcap: float | None
    final_softcap: float | None
    query_scalar: float | None
    """Gemma 2 and 3: queries are divided by the square root of this; None: of the head's size."""
    embed_scale: bool
    """Embeddings are multiplied by sqrt(hidden_size)."""
    norm_plus_one: bool
    """RMS norms multiply by weight + 1."""
    multimodal: bool
    """config.json describes more than a text model; the facts are of its text part."""

    @property
    def rotary_dim(self) -> int:
        """Leading elements of each head that are turned."""
        return int(self.head_dim * self.partial_rotary_factor)

    @classmethod
    def read(cls, folder: Path) -> ModelFacts:
        """Facts of the model in `folder`. ModelFileError names file and key."""
        return cls.parse(read_config(folder), folder / CONFIG)

    @classmethod
    def parse(cls, data: Mapping[str, Any], path: Path) -> ModelFacts:
        """Facts from the content of a config.json; `path` only names it in errors."""
        keys, traits = _keys(data, path)
        heads, hidden = keys.integer("num_attention_heads"), keys.integer("hidden_size")
        layers = keys.integer("num_hidden_layers", most=10_000)
        rope = read_rope(keys, traits.rope_aliases)
        window, windows = read_windows(keys, traits, layers)
        attention_bias = keys.flag("attention_bias", False)
        facts = cls(
            path=path,
            architecture=architecture_of(data, path),
            model_type=keys.text("model_type"),
            vocab_size=keys.integer("vocab_size"),
            hidden_size=hidden,
            intermediate_size=keys.integer("intermediate_size"),
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=_kv_heads(keys, heads),
            head_dim=_head_dim(keys, hidden, heads),
            max_position_embeddings=keys.integer("max_position_embeddings"),
            norm_epsilon=keys.number("rms_norm_eps", 1e-6),
            hidden_act=keys.text("hidden_activation" if keys.has("hidden_activation") else "hidden_act", "silu"),
            rope=rope.rope,
            tie_word_embeddings=keys.flag("tie_word_embeddings", False),
            attention_bias=attention_bias,
            mlp_bias=keys.flag("mlp_bias", False),
            dtype=_dtype(keys),
            quantization=_quantization(keys),
            bos_ids=keys.ids("bos_token_id"),
            eos_ids=keys.ids("eos_token_id"),
            sliding_window=window,
            layer_windows=windows,
            rope_local=rope.local if traits.gemma else None,
            partial_rotary_factor=rope.partial_rotary_factor,
            original_max_position_embeddings=rope.original_max_position_embeddings,
            qkv_bias=attention_bias if traits.qkv_bias is None else traits.qkv_bias,
            dense_bias=attention_bias if traits.dense_bias is None else traits.dense_bias,
            qk_norm=traits.qk_norm,
            moe=read_moe(keys, traits, layers),
            attn_softcap=_optional(keys, "attn_logit_softcapping", traits.attention_softcap),
            final_softcap=_optional(keys, "final_logit_softcapping", traits.softcaps),
            query_scalar=_optional(keys, "query_pre_attn_scalar", traits.softcaps),
            embed_scale=traits.gemma,
            norm_plus_one=traits.gemma,
            multimodal=data.get("text_config") is not None,
        )
        _check_rotary(facts, keys)
        return facts


def read_config(folder: Path) -> dict[str, Any]:
    """The content of the folder's config.json, unchecked; ModelFileError when there is none."""
    if not folder.is_dir():
        raise ModelFileError("no such model folder", where=folder, fix="check the path")
    return read_object(folder / CONFIG, fix="a model folder in Hugging Face layout has a config.json")


def architecture_of(data: Mapping[str, Any], path: Path) -> str:
    """The one class name in `architectures`; ModelFileError otherwise."""
    keys = Keys(data, path)
    value = keys.data.get("architectures")
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], str):
        raise keys.wrong("architectures", "does not name one architecture", 'a list such as ["LlamaForCausalLM"]')
    return value[0]


def _keys(data: Mapping[str, Any], path: Path) -> tuple[Keys, Traits]:
    """The keys of the text model over the defaults of its type, and the traits of that type."""
    outer = Keys(data, path)
    text = outer.block("text_config")
    if text is not None:
        # A key that stands only outside (dtype, eos_token_id) is the text model's too.
        inner = {k: v for k, v in text.data.items() if v is not None or k not in data}
        outer_type = outer.text("model_type")
        data = {**data, "model_type": TEXT_TYPES.get(outer_type, outer_type), **inner}
    traits = traits_of(Keys(data, path).text("model_type"))
    return Keys(data, path, "" if text is None else "text_config.", traits.defaults), traits


def _optional(keys: Keys, key: str, used: bool) -> float | None:
    return keys.number(key) if used and keys.has(key) else None


def _check_rotary(facts: ModelFacts, keys: Keys) -> None:
    if facts.rotary_dim < 2 or facts.rotary_dim % 2:
        raise keys.wrong("partial_rotary_factor", f"of a head of {facts.head_dim} turns {facts.rotary_dim} elements",
                         "an even number of at least 2")  # fmt: skip


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
