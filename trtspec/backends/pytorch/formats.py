"""Which quantized weights the LLM API reads, and why not the others."""

from __future__ import annotations

from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import ConfigError

READS = ("none", "fp8", "fp8_pc_pt", "nvfp4", "int4_awq", "w4a8_awq")
"""Formats of modelopt's unified Hugging Face checkpoints for which the LLM API has a recipe: FP4, FP8 per tensor and
rowwise, W4A16 AWQ, W4A8 AWQ (TensorRT-LLM docs/source/features/quantization.md, 1.0 to 1.4.0rc4)."""
INSTEAD = {
    "int8_sq": "fp8 (nvfp4 on Blackwell)",
    "int8_wo": "fp8, or int4_awq before Ada",
    "int4_wo": "int4_awq",
    "int4_rtn": "int4_awq",
}
"""Formats of engines only, and the nearest one that the LLM API reads."""


def problem(config: RunConfig, role: Role) -> str | None:
    """What of a role's quantization has no counterpart, as a sentence; None when all has."""
    quantization = config.pair[role].quantization
    if quantization.weights not in READS:
        nearest = INSTEAD[quantization.weights]
        return f"the LLM API has no recipe for {quantization.weights} weights; the nearest is {nearest}"
    if quantization.kv_cache == "int8":
        return "the LLM API has no INT8 KV cache; use fp8 or auto"
    return None


def require_formats(config: RunConfig) -> None:
    """ConfigError for the first role whose format is not read."""
    for role in ROLES[::-1]:
        found = problem(config, role)
        if found:
            raise ConfigError(
                found, where=f"pair.{role}.quantization", fix="choose another format, or engine.backend: tensorrt"
            )
