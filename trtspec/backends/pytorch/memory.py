"""The share of free memory for the KV caches, from the memory plan of the pair."""

from __future__ import annotations

from collections.abc import Mapping

from trtspec.analysis.memory import reserve
from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import Role, RunConfig
from trtspec.pairing.placement import MemoryPlan, plan_memory

DEFAULT = 0.9
"""What TensorRT-LLM takes itself (KvCacheConfig.free_gpu_memory_fraction)."""


def as_served(config: RunConfig) -> RunConfig:
    """The configuration with the draft split like the target, which is how the LLM API runs it."""
    draft = config.pair.draft.model_copy(update={"parallelism": config.pair.target.parallelism})
    hardware = config.hardware.model_copy(update={"placement": "shared"})
    return config.model_copy(update={"pair": config.pair.model_copy(update={"draft": draft}), "hardware": hardware})


def plan(facts: Mapping[Role, ModelFacts], config: RunConfig) -> MemoryPlan | None:
    """Both models on the target's GPUs; None where the GPU is not known."""
    return plan_memory(facts, as_served(config))


def free_fraction(facts: Mapping[Role, ModelFacts], config: RunConfig) -> float:
    """kv_cache_config.free_gpu_memory_fraction: all that is left on the fullest GPU but the plan's reserve.

    One fraction for both caches: the LLM API divides it between the models itself. It is of the memory that is free
    once weights, buffers and a trial step are there, so it is (left - reserve) ÷ left, rounded down to hundredths.
    """
    found = plan(facts, config)
    if found is None:
        return DEFAULT
    left = min(found.memory - sum(use.fixed for use in gpu.uses.values()) for gpu in found.gpus)
    spared = left - reserve(found.memory)
    return DEFAULT if spared <= 0 else int(100 * spared / left) / 100
