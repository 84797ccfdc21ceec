"""Phi-3 and Phi-4 (text). Config keys: TensorRT-LLM 1.2.1, models/phi3/config.py and convert.py (Phi3Config).

qkv_proj is [Q; K; V] by rows in both formats; gate_up_proj is [gate; up] here and [up; gate] in `mlp.fc` there, where
`swiglu` multiplies silu of the second half with the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import Attention, Family, Mlp


def settings(facts: ModelFacts) -> Mapping[str, Any]:
    """Phi3Config's fields beyond those every checkpoint has."""
    found: dict[str, Any] = {"tie_word_embeddings": False}
    if facts.rope.type == "longrope":
        found |= {
            "original_max_position_embeddings": facts.original_max_position_embeddings,
            "longrope_scaling_short_factors": facts.rope.parameters.get("short_factor"),
            "longrope_scaling_long_factors": facts.rope.parameters.get("long_factor"),
        }
    return found


FAMILY = Family(
    name="phi3",
    architectures={"Phi3ForCausalLM": "Phi3ForCausalLM"},
    activations=("silu", "swish"),
    activation="swiglu",
    settings=settings,
    attention=Attention(fused="self_attn.qkv_proj"),
    mlp=Mlp(fused="mlp.gate_up_proj"),
    rope_types=("default", "longrope"),
    partial_rotary=True,
)
