"""Llama 2 and 3.x. Config keys: TensorRT-LLM 1.2.1, models/llama/config.py (LLaMAConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import Family


def settings(facts: ModelFacts) -> Mapping[str, Any]:
    """LLaMAConfig's fields beyond those every checkpoint has."""
    return {
        "mlp_bias": facts.mlp_bias,
        "residual_mlp": False,
        "disable_weight_only_quant_plugin": False,
        "remove_duplicated_kv_heads": False,
        # The head is in the file as a tensor of its own, so a loader has nothing to tie.
        "tie_word_embeddings": False,
    }


def cautions(facts: ModelFacts) -> tuple[str, ...]:
    """LLaMAConfig has no field for long and short factors, nor for a bias on only some projections."""
    if facts.rope.type == "longrope":
        return (
            f"TensorRT-LLM reads longrope factors only for Phi-3: an engine of this {facts.architecture} ignores them",
        )
    return ()


FAMILY = Family(
    name="llama",
    architectures={"LlamaForCausalLM": "LlamaForCausalLM"},
    activations=("silu", "swish"),
    activation="silu",
    settings=settings,
    cautions=cautions,
)
