"""Config keys of a mixture of experts: TensorRT-LLM 1.2.1, layers/moe.py (MoeConfig)."""

from __future__ import annotations

from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.errors import ModelFileError

NONE, RENORMALIZE = 0, 1
"""MoeConfig.ExpertScaleNormalizationMode."""


def moe_settings(facts: ModelFacts) -> dict[str, Any]:
    """`moe`; the model type is one that has experts."""
    moe = facts.moe
    if moe is None:
        raise ModelFileError("has no experts", where=facts.path, found=facts.model_type)
    mode = RENORMALIZE if moe.normalize else NONE
    return {"moe": {"num_experts": moe.experts, "top_k": moe.top_k, "normalization_mode": mode}}
