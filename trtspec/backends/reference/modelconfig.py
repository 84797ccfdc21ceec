"""The model part of a checkpoint's config.json, checked and in one spelling. Nothing here imports torch.

Keys are TensorRT-LLM's (0.17 - 1.2.1). What a key leaves open follows from the architecture: Gemma's embeddings are
scaled, Phi-3's FFN comes fused. `layer_windows` is trtspec's own: the window of each layer, null for full attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trtspec.backends.reference.keys import Keys
from trtspec.errors import ModelFileError

GEMMA = ("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM")
FUSED = ("Phi3ForCausalLM",)
"""mlp.fc holds both halves of the gated FFN, [up; gate] by rows."""
ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "MixtralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    *GEMMA,
    *FUSED,
)
WEIGHT_ALGOS = (
    None, "NO_QUANT", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "W8A8_SQ_PER_CHANNEL", "W8A16", "W4A16", "W4A16_AWQ",
    "W4A8_AWQ", "NVFP4",
)  # fmt: skip
CACHE_ALGOS = (None, "FP8", "INT8")
Activation = Literal["silu", "gelu"]
ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",
    # TensorRT-LLM's gelu is the tanh form under each of its names.
    "gelu": "gelu",
    "gelu_tanh": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_new": "gelu",
    "geglu": "gelu",
}
_STRETCHED = ("linear", "dynamic", "yarn")
"""Rope types whose max_position_embeddings is what the model was trained on, to be multiplied by the factor: so does
trtllm-build. llama3 and longrope configs state the whole length."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: each token goes through `top_k` of `count` FFNs of `intermediate` columns."""

    count: int
    top_k: int
    intermediate: int
    normalize: bool
    """The weights of the chosen experts are made to sum to 1."""
    sparse: tuple[bool, ...]
    """Which layers are a mixture; the others have a plain FFN."""


@dataclass(frozen=True)
class ModelConfig:
    """A decoder as a TensorRT-LLM checkpoint describes it; sizes are of the whole model, all ranks together."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocab_size: int
    norm_epsilon: float
    max_positions: int
    """the longest sequence that it knows, stretched rope included"""
    rotary_base: float
    rotary_scaling: Mapping[str, Any] | None
    attn_bias: bool
    """the checkpoint must have the bias of queries, keys and values; others are used where it has them"""
    mlp_bias: bool
    architecture: str = "LlamaForCausalLM"
    activation: Activation = "silu"
    rotary_dim: int | None = None
    """leading elements of each head that are turned; None: all"""
    trained_positions: int | None = None
    """max_position_embeddings as it is written, where it is not `max_positions`"""
    original_positions: int | None = None
    """positions the model was trained on before its context was stretched, where config.json says it"""
    windows: tuple[int | None, ...] = ()
    """of each layer, in tokens; None: it sees everything; (): so do all"""
    local_base: float | None = None
    """rotary base of the layers with a window, which then have no scaling"""
    query_scalar: float | None = None
    """scores are divided by its square root instead of the head size's"""
    attn_softcap: float | None = None
    final_softcap: float | None = None
    head_norms: bool = False
    """queries and keys are normed head by head before they are turned"""
    inter_norms: bool = False
    """attention's and the FFN's results are normed too, before they are added"""
    experts: Experts | None = None
    quant_algo: str | None = None
    cache_algo: str | None = None
    ranks: int = 1

    @property
    def qkv_rows(self) -> int:
        """Rows of the fused projection: queries, then keys, then values."""
        return (self.heads + 2 * self.kv_heads) * self.head_size

    @property
    def scaled_embeddings(self) -> bool:
        """Embeddings are multiplied by sqrt(hidden)."""
        return self.architecture in GEMMA

    @property
    def fused_ffn(self) -> bool:
        """mlp.fc is [up; gate]."""
        return self.architecture in FUSED

    @property
    def plain_weights(self) -> bool:
        """The one rank file holds the weights as they are multiplied: no merging, nothing to dequantize."""
        return self.ranks == 1 and self.quant_algo is None and self.cache_algo is None

    @property
    def emulated(self) -> bool:
        """Something is rounded on purpose when it runs: inputs of linears, or the cache."""
        return self.quant_algo is not None or self.cache_algo is not None

    @property
    def parameters(self) -> int:
        """Weights in the linears of one step (embedding rows are looked up, not multiplied)."""
        attention = (self.qkv_rows + self.heads * self.head_size) * self.hidden
        ffn = self.layers * self.intermediate
        if self.experts is not None:
            sparse = sum(self.experts.sparse)
            ffn = (self.layers - sparse) * self.intermediate + sparse * self.experts.top_k * self.experts.intermediate
        return self.layers * attention + 3 * ffn * self.hidden + self.vocab_size * self.hidden

    @property
    def memory_bound(self) -> bool:
        """True when the weights are far too many for a CPU's caches, and a step costs what reading them costs."""
        return self.parameters >= 50_000_000


def read_model_config(file: Path) -> ModelConfig:
    """The model part of a checkpoint's config.json."""
    return model_config(Keys.read(file))


def model_config(keys: Keys) -> ModelConfig:
    """Check what the reference engine can run. ModelFileError names the key that it cannot."""
    keys.only("architecture", *ARCHITECTURES)
    keys.only("position_embedding_type", "rope_gpt_neox", "yarn", "long_rope", default="rope_gpt_neox")
    quantization = keys.block("quantization", optional=True)
    quantization.only("quant_algo", *WEIGHT_ALGOS, default=None)
    quantization.only("kv_cache_quant_algo", *CACHE_ALGOS, default=None)
    layers, hidden = keys.integer("num_hidden_layers"), keys.integer("hidden_size")
    intermediate = keys.integer("intermediate_size", default=4 * hidden)
    heads, kv_heads, head_size = _heads(keys, hidden)
    scaling = keys.block("rotary_scaling").data if keys.has("rotary_scaling") else None
    trained = keys.integer("max_position_embeddings")
    return ModelConfig(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        intermediate=intermediate,
        vocab_size=keys.integer("vocab_size"),
        norm_epsilon=keys.number("norm_epsilon", default=1e-5),
        max_positions=_reach(keys, trained),
        rotary_base=keys.number("rotary_base", default=10000.0),
        rotary_scaling=scaling,
        attn_bias=keys.flag("attn_bias"),
        mlp_bias=keys.flag("mlp_bias"),
        architecture=keys.text("architecture"),
        activation=_activation(keys),
        rotary_dim=_rotary_dim(keys, head_size),
        trained_positions=trained,
        original_positions=_original(keys),
        windows=_windows(keys, layers),
        local_base=keys.optional("rope_local_base_freq"),
        query_scalar=keys.optional("query_pre_attn_scalar"),
        attn_softcap=keys.optional("attn_logit_softcapping"),
        final_softcap=keys.optional("final_logit_softcapping"),
        head_norms=keys.flag("qk_layernorm"),
        inter_norms=keys.flag("inter_layernorms", default=keys.text("architecture") in GEMMA[1:]),
        experts=_experts(keys, layers, intermediate),
        quant_algo=None if quantization.data.get("quant_algo") == "NO_QUANT" else quantization.data.get("quant_algo"),
        cache_algo=quantization.data.get("kv_cache_quant_algo"),
        ranks=_ranks(keys),
    )


def _heads(keys: Keys, hidden: int) -> tuple[int, int, int]:
    heads = keys.integer("num_attention_heads")
    kv_heads = keys.integer("num_key_value_heads", default=heads)
    head_size = keys.integer("head_size", default=max(hidden // heads, 1))
    if heads % kv_heads or head_size % 2:
        raise ModelFileError(
            "heads do not fit together",
            where=keys.file,
            found=f"{heads} heads, {kv_heads} key/value heads, head size {head_size}",
            expected="key/value heads that divide the heads and an even head size",
        )
    return heads, kv_heads, head_size


def _activation(keys: Keys) -> Activation:
    name = keys.text("hidden_act", default="silu")
    if name not in ACTIVATIONS:
        raise keys.wrong("hidden_act", " or ".join(ACTIVATIONS))
    return ACTIVATIONS[name]


def _rotary_dim(keys: Keys, head_size: int) -> int | None:
    """`rotary_pct` of the head; `rotary_embedding_dim`, where both are given, must be the same."""
    share = keys.number("rotary_pct", default=1.0)
    given = keys.integer("rotary_embedding_dim", default=int(head_size * share))
    if given > head_size or given % 2 or (keys.has("rotary_pct") and given != int(head_size * share)):
        raise keys.wrong("rotary_embedding_dim", f"an even number up to the head size {head_size}, as rotary_pct says")
    return None if given == head_size else given


def _original(keys: Keys) -> int | None:
    scaling = keys.block("rotary_scaling", optional=True)
    key = "original_max_position_embeddings"
    place = scaling if scaling.has(key) else keys
    return place.integer(key) if place.has(key) else None


def _reach(keys: Keys, trained: int) -> int:
    scaling = keys.block("rotary_scaling", optional=True)
    kind = scaling.text("rope_type", default=scaling.text("type", default="default"))
    if kind not in _STRETCHED:
        return trained
    return max(trained, int((_original(keys) or trained) * scaling.number("factor", default=1.0)))


def _windows(keys: Keys, layers: int) -> tuple[int | None, ...]:
    """`layer_windows` where it stands; else what upstream's keys mean: Gemma 2 alternates, Gemma 3 leaves out each
    sixth, other families have the window in all layers."""
    if keys.has("layer_windows"):
        given = keys.items("layer_windows")
        if len(given) != layers or any(w is not None and (type(w) is not int or w < 1) for w in given):
            raise keys.wrong("layer_windows", f"{layers} numbers of tokens, null for full attention")
        return tuple(given) if any(w is not None for w in given) else ()
    if not keys.has("sliding_window"):
        return ()
    window = keys.integer("sliding_window")
    each = {"Gemma2ForCausalLM": 2, "Gemma3ForCausalLM": 6}.get(keys.text("architecture"), 0)
    each = keys.integer("_sliding_window_pattern", default=each, low=0)
    return tuple(None if each and (i + 1) % each == 0 else window for i in range(layers))


def _experts(keys: Keys, layers: int, intermediate: int) -> Experts | None:
    block = keys.block("moe", optional=True)
    count = block.integer("num_experts", default=0, low=0)
    if not count:
        return None
    top_k = block.integer("top_k")
    block.only("normalization_mode", 0, 1, default=1)  # none, renormalize: what the supported families have
    if top_k > count:
        raise block.wrong("top_k", f"at most the {count} experts")
    step, dense = keys.integer("decoder_sparse_step", default=1), keys.items("mlp_only_layers")
    own = keys.integer("moe_intermediate_size", default=0, low=0)
    return Experts(
        count=count,
        top_k=top_k,
        intermediate=own or intermediate,
        normalize=block.data.get("normalization_mode", 1) == 1,
        sparse=tuple(i not in dense and (i + 1) % step == 0 for i in range(layers)),
    )


def _ranks(keys: Keys) -> int:
    mapping = keys.block("mapping", optional=True)
    mapping.only("cp_size", 1, None, default=1)
    mapping.only("moe_ep_size", 1, None, default=1)
    tensor, pipeline = mapping.integer("tp_size", default=1), mapping.integer("pp_size", default=1)
    world = mapping.integer("world_size", default=tensor * pipeline)
    if world != tensor * pipeline:
        raise mapping.wrong("world_size", f"tp_size {tensor} × pp_size {pipeline}")
    return world
