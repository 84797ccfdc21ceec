"""Qwen2/2.5, Qwen3 and Qwen3-MoE. Config keys: TensorRT-LLM 1.2.1, models/qwen/config.py (QWenConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import Experts, Family
from trtspec.checkpoint.families.mixture import moe_settings


def settings(facts: ModelFacts) -> Mapping[str, Any]:
    """QWenConfig's fields beyond those every checkpoint has."""
    return {
        "qwen_type": facts.model_type,
        "mlp_bias": facts.mlp_bias,
        "disable_weight_only_quant_plugin": False,
        "use_logn_attn": False,
        "tie_word_embeddings": False,
    }


def cautions(facts: ModelFacts) -> tuple[str, ...]:
    """What QWenConfig does not read."""
    found = []
    if facts.rope.type == "longrope":
        found.append(
            f"TensorRT-LLM reads longrope factors only for Phi-3: an engine of this {facts.architecture} ignores them"
        )
    if facts.dense_bias:
        found.append("TensorRT-LLM's Qwen has no bias on the attention's output: an engine would refuse these weights")
    return tuple(found)


def _moe(facts: ModelFacts) -> Mapping[str, Any]:
    found = {**settings(facts), **moe_settings(facts)}
    if facts.moe is not None:
        found |= {
            "moe_intermediate_size": facts.moe.intermediate_size,
            "moe_shared_expert_intermediate_size": 0,
            # Both rules of config.json (mlp_only_layers, decoder_sparse_step) as the list that follows from them.
            "mlp_only_layers": [i for i, sparse in enumerate(facts.moe.layers) if not sparse],
            "decoder_sparse_step": 1,
        }
    return found


QWEN = Family(
    name="qwen",
    architectures={"Qwen2ForCausalLM": "Qwen2ForCausalLM", "Qwen3ForCausalLM": "Qwen3ForCausalLM"},
    activations=("silu", "swish"),
    activation="silu",
    settings=settings,
    cautions=cautions,
)
QWEN_MOE = replace(
    QWEN,
    name="qwen-moe",
    architectures={"Qwen3MoeForCausalLM": "Qwen3MoeForCausalLM"},
    activation="swiglu",
    settings=_moe,
    experts=Experts(
        router="mlp.gate",
        gate="mlp.experts.{}.gate_proj",
        up="mlp.experts.{}.up_proj",
        down="mlp.experts.{}.down_proj",
    ),
)
