"""Which tensors a rank file of a checkpoint holds, and their shapes: §3.3 and §3.4 of the fact sheet.

Only for the Llama, Qwen and Gemma families; of others the embedding, the last norm and the layers' input norms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

Shape = tuple[int, ...]
Tensors = dict[str, tuple[frozenset[str], Shape | None]]
"""Name → types it may have in the file, and its shape (None: not checked)."""

LLAMA = ("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM")
QWEN = ("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM")
GEMMA = ("GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM")
OTHERS = ("Phi3ForCausalLM", "GPT2LMHeadModel", "NemotronForCausalLM")
SINCE = {"Qwen3ForCausalLM": "1.0.0", "Qwen3MoeForCausalLM": "1.0.0", "Gemma3ForCausalLM": "0.19.0"}
"""First release with engines for an architecture. Gemma 3's is not in the sheet: the early tree lacks it (inferred)."""

PLAIN = frozenset({"F16", "BF16", "F32"})
F32 = frozenset({"F32"})
BYTES = frozenset({"I8", "U8"})
FP8 = frozenset({"F8_E4M3", "I8", "U8"})
"""8-bit floats; older writers store the same bytes as integers."""
ONE: Shape = (1,)


def excluded(quantization: Mapping[str, Any], name: str) -> bool:
    """Whether a linear stays unquantized."""
    return any(fnmatchcase(name, pattern) for pattern in quantization.get("exclude_modules") or ())


class Sizes:
    """The numbers of a checkpoint's config.json that shapes are made of, for one rank."""

    def __init__(self, config: Mapping[str, Any], rank: int) -> None:
        mapping = config.get("mapping") or {}
        self.config = config
        self.tp, self.pp = int(mapping.get("tp_size", 1)), int(mapping.get("pp_size", 1))
        self.hidden, self.heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        self.kv = int(config.get("num_key_value_heads") or self.heads)
        self.dim = int(config.get("head_size") or self.hidden // self.heads)
        self.inner = int(config.get("intermediate_size") or 4 * self.hidden)
        self.vocab, layers = int(config["vocab_size"]), int(config["num_hidden_layers"])
        self.stage, self.split = divmod(rank, self.tp)
        more = self.stage < layers % self.pp
        self.layers = layers // self.pp + more
        self.first_layer = self.stage * (layers // self.pp) + min(self.stage, layers % self.pp)
        self.quantization: Mapping[str, Any] = config.get("quantization") or {}

    @property
    def padded(self) -> int:
        """Rows of the output layer on one rank."""
        return math.ceil(self.vocab / self.tp)


def expected(config: Mapping[str, Any], rank: int) -> tuple[Tensors, Tensors]:
    """Tensors that one rank's file must hold, and those it may hold besides."""
    sizes = Sizes(config, rank)
    must: Tensors = {}
    may: Tensors = {}
    if sizes.stage == 0:
        must["transformer.vocab_embedding.weight"] = (PLAIN, _embedding(sizes))
    if sizes.stage == sizes.pp - 1:
        must["transformer.ln_f.weight"] = (PLAIN, (sizes.hidden,))
        tied = config["architecture"] in GEMMA or config.get("tie_word_embeddings", True)
        (may if tied else must)["lm_head.weight"] = (PLAIN, (sizes.padded, sizes.hidden))
    for layer in range(sizes.layers):
        _layer(must, may, sizes, layer)
    return must, may


def _embedding(sizes: Sizes) -> Shape:
    if not sizes.config.get("use_parallel_embedding") or sizes.tp == 1:
        return (sizes.vocab, sizes.hidden)
    if sizes.config.get("embedding_sharding_dim", 0) == 1:
        return (sizes.vocab, sizes.hidden // sizes.tp)
    return (sizes.padded, sizes.hidden)


def _layer(must: Tensors, may: Tensors, sizes: Sizes, index: int) -> None:
    config, prefix = sizes.config, f"transformer.layers.{index}."
    architecture = config["architecture"]
    must[prefix + "input_layernorm.weight"] = (PLAIN, (sizes.hidden,))
    if architecture in OTHERS:
        return
    must[prefix + "post_layernorm.weight"] = (PLAIN, (sizes.hidden,))
    must |= _more_norms(sizes, prefix)
    for name, (out, inputs) in _linears(sizes, index).items():
        must |= _linear(sizes, prefix + name, out, inputs)
    if architecture.startswith("Qwen2"):
        must[prefix + "attention.qkv.bias"] = (PLAIN, (_qkv(sizes),))
    for name in ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj"):
        may.setdefault(f"{prefix}{name}.bias", (PLAIN, None))
    if sizes.quantization.get("kv_cache_quant_algo"):
        must[prefix + "attention.kv_cache_scaling_factor"] = (F32, ONE)
    if _sparse(config, sizes.first_layer + index):
        must[prefix + "mlp.router.weight"] = (F32, (config["moe"]["num_experts"], sizes.hidden))
        for name in ("shared_expert", "shared_expert_gate"):
            may[f"{prefix}mlp.{name}.*"] = (PLAIN, None)


def _more_norms(sizes: Sizes, prefix: str) -> Tensors:
    architecture: str = sizes.config["architecture"]
    found: Tensors = {}
    if architecture in GEMMA[1:]:
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            found[f"{prefix}{name}.weight"] = (PLAIN, (sizes.hidden,))
    if architecture.startswith("Qwen3") or architecture == "Gemma3ForCausalLM" or sizes.config.get("qk_layernorm"):
        for name in ("q_layernorm", "k_layernorm"):
            found[f"{prefix}attention.{name}.weight"] = (PLAIN, (sizes.dim,))
    return found


def _qkv(sizes: Sizes) -> int:
    return (sizes.heads // sizes.tp + 2 * max(sizes.kv // sizes.tp, 1)) * sizes.dim


def _sparse(config: Mapping[str, Any], layer: int) -> bool:
    moe = config.get("moe") or {}
    return bool(moe.get("num_experts")) and layer not in (config.get("mlp_only_layers") or ())


def _linears(sizes: Sizes, index: int) -> dict[str, tuple[Shape, int]]:
    """Linear → shape of what it puts out (experts first) and number of its inputs, on this rank."""
    inner = sizes.inner // sizes.tp
    found: dict[str, tuple[Shape, int]] = {
        "attention.qkv": ((_qkv(sizes),), sizes.hidden),
        "attention.dense": ((sizes.hidden,), sizes.heads * sizes.dim // sizes.tp),
    }
    if _sparse(sizes.config, sizes.first_layer + index):
        experts = sizes.config["moe"]["num_experts"]
        small = (sizes.config.get("moe_intermediate_size") or sizes.inner) // sizes.tp
        return found | {
            "mlp.fc": ((experts, 2 * small), sizes.hidden),
            "mlp.proj": ((experts, sizes.hidden), small),
        }
    return found | {
        "mlp.fc": ((inner,), sizes.hidden),
        "mlp.gate": ((inner,), sizes.hidden),
        "mlp.proj": ((sizes.hidden,), inner),
    }


def _linear(sizes: Sizes, name: str, out: Shape, inputs: int) -> Tensors:
    """A linear's weight and scales as its algorithm stores them."""
    quantization = sizes.quantization
    algo, group = quantization.get("quant_algo"), quantization.get("group_size") or 128
    plain: Tensors = {f"{name}.weight": (PLAIN, (*out, inputs))}
    if algo is None or excluded(quantization, name):
        return plain
    scale, inp, pre = (f"{name}.{s}_scaling_factor" for s in ("weights", "activation", "prequant"))
    prequant: Tensors = {pre: (PLAIN, (inputs,))} if quantization.get("pre_quant_scale") else {}
    packed = {f"{name}.weight": (BYTES, (*out[:-1], out[-1] // 2, inputs)), scale: (PLAIN, (*out, inputs // group))}
    algos: dict[str, Tensors] = {
        "FP8": {f"{name}.weight": (FP8, (*out, inputs)), scale: (F32, None), inp: (F32, None)},
        "FP8_PER_CHANNEL_PER_TOKEN": {
            f"{name}.weight": (FP8, (*out, inputs)), f"{name}.per_channel_scale": (F32, None),
        },
        "W8A8_SQ_PER_CHANNEL": {
            f"{name}.weight": (BYTES, (*out, inputs)), scale: (F32, out), inp: (F32, ONE), pre: (PLAIN, (inputs,)),
        },
        "W4A16_AWQ": {**packed, **prequant},
        "W4A8_AWQ": {**packed, **prequant, inp: (F32, ONE)},
        "NVFP4": {
            f"{name}.weight": (BYTES, (*out, inputs // 2)), scale: (FP8, (*out, inputs // 16)),
            f"{scale}_2": (F32, None), inp: (F32, None),
        },
    }  # fmt: skip
    # W8A16 and W4A16 in their late form are plain; other algorithms are not described, so only the weight is asked for.
    return algos.get(algo, plain if algo in ("W8A16", "W4A16") else {f"{name}.weight": (PLAIN | FP8, None)})
