"""Mistral and Mixtral: TensorRT-LLM loads both as Llama (models/__init__.py, MODEL_MAP; models/llama/config.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families import llama
from trtspec.checkpoint.families.base import Experts
from trtspec.checkpoint.families.mixture import moe_settings

MISTRAL = replace(llama.FAMILY, name="mistral", architectures={"MistralForCausalLM": "MistralForCausalLM"})


def _mixtral(facts: ModelFacts) -> Mapping[str, Any]:
    return {**llama.settings(facts), **moe_settings(facts)}


MIXTRAL = replace(
    llama.FAMILY,
    name="mixtral",
    architectures={"MixtralForCausalLM": "MixtralForCausalLM"},
    activation="swiglu",
    settings=_mixtral,
    experts=Experts(
        router="block_sparse_moe.gate",
        gate="block_sparse_moe.experts.{}.w1",
        up="block_sparse_moe.experts.{}.w3",
        down="block_sparse_moe.experts.{}.w2",
    ),
)
