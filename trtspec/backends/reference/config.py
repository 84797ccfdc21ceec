"""What an engine folder says about its model and its limits. Nothing here imports torch.

Keys follow TensorRT-LLM's engine config.json: `pretrained_config` is the checkpoint's config, `build_config` the
limits; `reference` is ours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trtspec.errors import ModelFileError

LinearKind = Literal["mkldnn-prepacked", "torch-linear"]
ComputeDtype = Literal["float32", "bfloat16"]
COMPUTE_DTYPES: tuple[ComputeDtype, ...] = ("float32", "bfloat16")


@dataclass(frozen=True)
class ModelConfig:
    """A Llama as a TensorRT-LLM checkpoint describes it; sizes are of the whole model (one rank)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocab_size: int
    norm_epsilon: float
    max_positions: int
    rotary_base: float
    rotary_scaling: Mapping[str, Any] | None
    attn_bias: bool
    mlp_bias: bool

    @property
    def qkv_rows(self) -> int:
        """Rows of the fused projection: queries, then keys, then values."""
        return (self.heads + 2 * self.kv_heads) * self.head_size

    @property
    def parameters(self) -> int:
        """Weights in the linears of one step (embedding rows are looked up, not multiplied)."""
        attention = (self.qkv_rows + self.heads * self.head_size) * self.hidden
        return self.layers * (attention + 3 * self.intermediate * self.hidden) + self.vocab_size * self.hidden

    @property
    def memory_bound(self) -> bool:
        """True when the weights are far too many for a CPU's caches, and a step costs what reading them costs."""
        return self.parameters >= 50_000_000


@dataclass(frozen=True)
class EngineConfig:
    """Limits and arithmetic of an open engine. Lengths are in tokens and already include a target's draft room."""

    max_batch_size: int
    max_input_len: int
    """prompt + draft tokens of a request"""
    max_seq_len: int
    """prompt + draft tokens + new tokens of a request"""
    max_prompt_len: int
    """what the configuration promised for a user's prompt; the engine itself takes max_input_len"""
    max_draft_len: int
    """0: the engine takes no draft tokens"""
    vocab_size: int
    compute_dtype: ComputeDtype
    linear_kind: LinearKind
    """`mkldnn-prepacked`: oneDNN weights packed once; `torch-linear`: F.linear"""
    compiled: bool
    """The step is TorchScript; False: plain Python, the same results at about half the speed on small models."""
    threads: int
    cache_slots: int
    """Sequences whose keys and values are kept; those beyond max_batch_size wait for their next request."""
    draft_window: int
    """Tokens a conversation may lose at its end and still count as the same one."""


@dataclass(frozen=True)
class EngineFolder:
    """An engine folder's config.json, checked. Raises ModelFileError with the key that is wrong."""

    path: Path
    model: ModelConfig
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    max_prompt_len: int
    max_draft_len: int
    compute_dtype: ComputeDtype
    cache_slots: int
    draft_window: int

    @property
    def weights(self) -> Path:
        """The one rank's weights."""
        return self.path / "rank0.safetensors"

    @classmethod
    def read(cls, path: Path) -> EngineFolder:
        """Read `path`/config.json."""
        file = path / "config.json"
        root = _Keys(_json(file), file)
        build, ours = root.block("build_config"), root.block("reference")
        batch = build.integer("max_batch_size")
        dtype = ours.text("compute_dtype")
        if dtype not in COMPUTE_DTYPES:
            raise ModelFileError(
                "unknown reference.compute_dtype", where=file, found=dtype, expected=" or ".join(COMPUTE_DTYPES)
            )
        return cls(
            path=path,
            model=model_config(root.block("pretrained_config")),
            max_batch_size=batch,
            max_input_len=build.integer("max_input_len"),
            max_seq_len=build.integer("max_seq_len"),
            max_prompt_len=ours.integer("max_prompt_len", default=build.integer("max_input_len")),
            max_draft_len=build.integer("max_draft_len", low=0),
            compute_dtype=dtype,
            cache_slots=max(batch, ours.integer("cache_slots", default=2 * batch)),
            draft_window=ours.integer("draft_window", default=build.integer("max_draft_len", low=0) + 1),
        )


def read_model_config(file: Path) -> ModelConfig:
    """The model part of a checkpoint's config.json."""
    return model_config(_Keys(_json(file), file))


def model_config(keys: _Keys) -> ModelConfig:
    """Check what the reference engine can run: a dense, unquantized Llama on one rank."""
    keys.only("architecture", "LlamaForCausalLM", "MistralForCausalLM")
    keys.only("hidden_act", "silu", default="silu")
    keys.only("position_embedding_type", "rope_gpt_neox", default="rope_gpt_neox")
    keys.only("qk_layernorm", False, default=False)
    keys.block("mapping", optional=True).only("world_size", 1, default=1)
    quantization = keys.block("quantization", optional=True)
    quantization.only("quant_algo", None, "NO_QUANT", default=None)
    quantization.only("kv_cache_quant_algo", None, default=None)
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    kv_heads = keys.integer("num_key_value_heads", default=heads)
    head_size = keys.integer("head_size", default=max(hidden // heads, 1))
    keys.only("rotary_embedding_dim", head_size, None, default=None)
    if heads % kv_heads or head_size % 2:
        raise ModelFileError(
            "heads do not fit together",
            where=keys.file,
            found=f"{heads} heads, {kv_heads} key/value heads, head size {head_size}",
            expected="key/value heads that divide the heads and an even head size",
        )
    return ModelConfig(
        layers=keys.integer("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        intermediate=keys.integer("intermediate_size", default=4 * hidden),
        vocab_size=keys.integer("vocab_size"),
        norm_epsilon=keys.number("norm_epsilon", default=1e-5),
        max_positions=keys.integer("max_position_embeddings"),
        rotary_base=keys.number("rotary_base", default=10000.0),
        rotary_scaling=keys.data.get("rotary_scaling"),
        attn_bias=bool(keys.data.get("attn_bias", False)),
        mlp_bias=bool(keys.data.get("mlp_bias", False)),
    )


@dataclass(frozen=True)
class _Keys:
    """One JSON object and the file it came from, for errors that name the key."""

    data: Mapping[str, Any]
    file: Path
    prefix: str = ""

    def _wrong(self, key: str, expected: str) -> ModelFileError:
        found = json.dumps(self.data[key]) if key in self.data else "nothing"
        return ModelFileError(
            f"{self.prefix}{key} cannot be used by the reference engine",
            where=self.file,
            found=found,
            expected=expected,
        )

    def block(self, key: str, optional: bool = False) -> _Keys:
        value = self.data.get(key)
        if value is None and optional:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return _Keys(value, self.file, f"{self.prefix}{key}.")

    def integer(self, key: str, default: int | None = None, low: int = 1) -> int:
        value = self.data.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise self._wrong(key, f"an integer of at least {low}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.data.get(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self._wrong(key, "a positive number")
        return float(value)

    def text(self, key: str) -> str:
        value = self.data.get(key)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def only(self, key: str, *allowed: object, default: object = "") -> None:
        if self.data.get(key, default) not in allowed:
            raise self._wrong(key, " or ".join(json.dumps(value) for value in allowed))


def _json(file: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError("no such file", where=file, expected="an engine or checkpoint folder") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ModelFileError(f"cannot read: {error}", where=file) from None
    if not isinstance(data, dict):
        raise ModelFileError("not a JSON object", where=file)
    return data
