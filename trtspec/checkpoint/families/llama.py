"""Llama 2 and 3.x: Hugging Face names to TensorRT-LLM's, and the settings of LLaMAConfig.

Layout (TensorRT-LLM 0.17 - 1.2.1): qkv is [Q; K; V] by rows, mlp.fc is gate_proj, mlp.gate is up_proj,
mlp.proj is down_proj; the block computes proj(silu(fc(x)) * gate(x)).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import Family, Part, Rule, Shape
from trtspec.checkpoint.jsonfile import Keys
from trtspec.errors import ModelFileError

INV_FREQ = re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


def rules(facts: ModelFacts) -> tuple[Rule, ...]:
    """All tensors. A tied head is written out from the embedding: every TensorRT-LLM version loads that form."""
    vocab = (facts.vocab_size, facts.hidden_size)
    head = "model.embed_tokens.weight" if facts.tie_word_embeddings else "lm_head.weight"
    layers = [rule for i in range(facts.num_hidden_layers) for rule in _layer(facts, i)]
    return (
        Rule("transformer.vocab_embedding.weight", (Part("model.embed_tokens.weight", vocab),)),
        *layers,
        Rule("transformer.ln_f.weight", (Part("model.norm.weight", (facts.hidden_size,)),)),
        Rule("lm_head.weight", (Part(head, vocab),)),
    )


def _layer(facts: ModelFacts, i: int) -> list[Rule]:
    ours, theirs = f"transformer.layers.{i}", f"model.layers.{i}"
    hidden = facts.hidden_size
    attention, mlp = _attention(facts), _mlp(facts)
    found = [
        _norm(f"{ours}.input_layernorm", f"{theirs}.input_layernorm", hidden),
        _norm(f"{ours}.post_layernorm", f"{theirs}.post_attention_layernorm", hidden),
    ]
    for linears, bias in ((attention, facts.attention_bias), (mlp, facts.mlp_bias)):
        for name, parts in linears.items():
            found += _linear(f"{ours}.{name}", [(f"{theirs}.{part}", shape) for part, shape in parts], bias)
    return found


def _norm(ours: str, theirs: str, hidden: int) -> Rule:
    return Rule(f"{ours}.weight", (Part(f"{theirs}.weight", (hidden,)),))


def _linear(ours: str, parts: list[tuple[str, Shape]], bias: bool) -> list[Rule]:
    found = [Rule(f"{ours}.weight", tuple(Part(f"{name}.weight", shape) for name, shape in parts))]
    if bias:
        found.append(Rule(f"{ours}.bias", tuple(Part(f"{name}.bias", shape[:1]) for name, shape in parts)))
    return found


def _attention(facts: ModelFacts) -> dict[str, list[tuple[str, Shape]]]:
    hidden, rows = facts.hidden_size, facts.num_attention_heads * facts.head_dim
    kv = (facts.num_key_value_heads * facts.head_dim, hidden)
    return {
        "attention.qkv": [
            ("self_attn.q_proj", (rows, hidden)),
            ("self_attn.k_proj", kv),
            ("self_attn.v_proj", kv),
        ],
        "attention.dense": [("self_attn.o_proj", (hidden, rows))],
    }


def _mlp(facts: ModelFacts) -> dict[str, list[tuple[str, Shape]]]:
    hidden, inner = facts.hidden_size, facts.intermediate_size
    return {
        "mlp.fc": [("mlp.gate_proj", (inner, hidden))],
        "mlp.gate": [("mlp.up_proj", (inner, hidden))],
        "mlp.proj": [("mlp.down_proj", (hidden, inner))],
    }


def ignorable(name: str) -> bool:
    """Rotary frequencies: old exports store them, every engine computes them from the settings."""
    return INV_FREQ.fullmatch(name) is not None


def settings(facts: ModelFacts) -> Mapping[str, Any]:
    """LLaMAConfig's fields beyond those every checkpoint has."""
    if facts.hidden_act not in ("silu", "swish"):
        raise ModelFileError("hidden_act is not Llama's", where=facts.path, found=facts.hidden_act, expected="silu")
    return {
        "hidden_act": "silu",
        "position_embedding_type": "rope_gpt_neox",
        "rotary_embedding_dim": facts.head_dim,
        "rotary_base": facts.rope.theta,
        "rotary_scaling": _rotary_scaling(facts),
        "attn_bias": facts.attention_bias,
        "mlp_bias": facts.mlp_bias,
        "residual_mlp": False,
        "disable_weight_only_quant_plugin": False,
        "remove_duplicated_kv_heads": False,
        # The head is in the file as a tensor of its own, so a loader has nothing to tie.
        "tie_word_embeddings": False,
    }


def _rotary_scaling(facts: ModelFacts) -> dict[str, Any] | None:
    rope = facts.rope
    if rope.type not in ROPE_TYPES:
        raise ModelFileError(
            f"rope type {rope.type!r} is not supported for Llama", where=facts.path, expected=", ".join(ROPE_TYPES)
        )
    found = ROPE_TYPES[rope.type](Keys(rope.parameters, facts.path, "rope_scaling."))
    return {"rope_type": rope.type, **found} if found else None


def _linear_rope(keys: Keys) -> dict[str, Any]:
    return {"factor": keys.number("factor")}


def _llama3_rope(keys: Keys) -> dict[str, Any]:
    low, high = keys.number("low_freq_factor"), keys.number("high_freq_factor")
    if high <= low:
        raise keys.wrong("high_freq_factor", f"is not above low_freq_factor {low:g}")
    original = keys.integer("original_max_position_embeddings")
    return {
        "factor": keys.number("factor"),
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }


def _no_rope_scaling(_: Keys) -> dict[str, Any]:
    return {}


ROPE_TYPES: dict[str, Callable[[Keys], dict[str, Any]]] = {
    "default": _no_rope_scaling,
    "linear": _linear_rope,
    "llama3": _llama3_rope,
}

FAMILY = Family("llama", ("LlamaForCausalLM",), rules, settings, ignorable)
