"""How one model's weights and KV cache are stored, and what they are calibrated with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trtspec.config.section import PositiveInt, Section

Weights = Literal[
    "none", "fp8", "fp8_pc_pt", "int8_sq", "int8_wo", "int4_wo", "int4_rtn", "int4_awq", "w4a8_awq", "nvfp4"
]
KvCache = Literal["auto", "fp8", "int8"]
Method = Literal["modelopt", "layerwise"]

CALIBRATED = ("fp8", "int8_sq", "int4_awq", "w4a8_awq", "nvfp4")
"""Formats that need to have seen inputs; the others round to nearest."""
SEARCHED = ("int4_awq", "w4a8_awq")
"""Formats whose weights are changed by a search that only modelopt has."""
GROUPED = ("int4_rtn", "int4_awq", "w4a8_awq")
INT8_KV = ("none", "int8_sq", "int8_wo", "int4_wo", "int4_rtn", "int4_awq")
"""Formats with which TensorRT-LLM's own converters write an INT8 KV cache."""


class Calibration(Section):
    """The prompts whose activations set the scales; they should look like what will be served."""

    prompts: Path | None = None
    """JSONL file of prompts, as under validation.datasets. Unset: all of validation.datasets."""
    samples: PositiveInt = 128
    """Prompts used, drawn with the seed."""
    max_tokens: PositiveInt = 512
    """Longest prompt in tokens; the rest of a longer one is cut off."""
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Draws the prompts."""


class Quantization(Section):
    """How one model's weights and KV cache are stored in its checkpoint."""

    weights: Weights = "none"
    """Weight format; docs/quantization.md compares them. `none` keeps the checkpoint's 16- or 32-bit weights."""
    kv_cache: KvCache = "auto"
    """KV-cache format. `auto` is the compute type; `fp8` and `int8` need calibration."""
    group_size: Annotated[int, Field(ge=32, le=256, strict=True)] = 128
    """Weights that share a scale: int4_rtn, int4_awq and w4a8_awq only; 64 or 128."""
    method: Method = "modelopt"
    """Who calibrates. `modelopt`: nvidia-modelopt, whole model in memory. `layerwise`: one layer in memory; no AWQ."""
    calibration: Calibration = Calibration()

    @property
    def calibrates(self) -> bool:
        """Whether a scale has to come from calibration."""
        return self.weights in CALIBRATED or self.kv_cache != "auto"

    @property
    def plain(self) -> bool:
        """Nothing is quantized."""
        return self.weights == "none" and self.kv_cache == "auto"

    @model_validator(mode="after")
    def _possible(self) -> Quantization:
        if self.group_size not in (64, 128):
            raise ValueError(f"group_size {self.group_size} has no kernel in TensorRT-LLM; 64 or 128")
        if self.group_size != 128 and self.weights not in GROUPED:
            raise ValueError(f"group_size belongs to {', '.join(GROUPED)}; {self.weights} has none to choose")
        if self.group_size != 128 and self.weights == "w4a8_awq":
            raise ValueError("TensorRT-LLM runs w4a8_awq with group_size 128 only")
        if self.kv_cache == "int8" and self.weights not in INT8_KV:
            raise ValueError(f"an int8 KV cache does not go with {self.weights} weights; use fp8 or auto")
        if self.method == "layerwise" and self.weights in SEARCHED:
            raise ValueError(f"{self.weights} is searched by modelopt; method: layerwise only measures activations")
        return self


class Tools(Section):
    """Programs outside this environment."""

    modelopt_python: Path | None = None
    """Python of the environment that has nvidia-modelopt 0.45 - 0.47. Unset: this one."""
