"""The weight formats of a checkpoint, one table: what each is called, what it stores, what it needs.

Layouts: TensorRT-LLM 0.17 - 1.2.1, docs/source/legacy/architecture/checkpoint.md and quantization/layers.py, and the
export of nvidia-modelopt 0.45 - 0.47 for them. `X` below is a linear: attention.qkv, attention.dense, mlp.fc, mlp.gate
or mlp.proj; O its outputs, K its inputs, g the group size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Extent = Literal["scalar", "one", "rows", "groups", "columns"]
"""Shape of a scale: [], [1], [O], [O, K/g] or [K]."""
Activation = Literal["none", "fp8-static", "fp8-token", "int8-static", "nvfp4-block"]
"""How the inputs of a linear are quantized when it runs; `static` scales come from calibration."""
Calibration = Literal["none", "inputs", "search"]
"""`none`: round to nearest. `inputs`: largest inputs of each linear. `search`: modelopt changes weights as well."""


@dataclass(frozen=True)
class Scale:
    """One tensor X.<suffix> beside X.weight. `dtype` is a safetensors type; "" stands for the model's own."""

    suffix: str
    dtype: str
    extent: Extent


@dataclass(frozen=True)
class Format:
    """One weight format. `name` is its name in the configuration, `quant_algo` TensorRT-LLM's."""

    name: str
    quant_algo: str | None
    stored: str
    """safetensors type of X.weight; "" where the weights stay plain."""
    bits: float
    """Bits a weight of a linear has when it runs, scales included (g = 128, or 16 for nvfp4)."""
    scales: tuple[Scale, ...] = ()
    activation: Activation = "none"
    calibration: Calibration = "none"
    group_size: int | None = None
    """Columns that share a scale; None where whole rows or tensors do."""
    prequant: bool = False
    """Inputs are multiplied by a vector first, and the weights were divided by it."""
    sm: tuple[int, int] = (80, 121)
    """Compute capabilities, first and last, that TensorRT-LLM runs it on; 89 is Ada, 90 Hopper, 100 Blackwell."""
    experts: bool = False
    """Whether experts of a mixture can be stored so."""

    @property
    def late(self) -> bool:
        """Plain weights and only the algorithm named: the engine builder quantizes them."""
        return self.quant_algo is not None and not self.stored

    @property
    def packs_rows(self) -> bool:
        """Two output rows in a byte: INT4. (NVFP4 packs two columns.)"""
        return self.stored == "I8" and self.group_size is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Suffixes of the tensors beside X.weight."""
        return tuple(scale.suffix for scale in self.scales)


WEIGHT, WEIGHT_2, INPUT = "weights_scaling_factor", "weights_scaling_factor_2", "activation_scaling_factor"
CHANNEL, PREQUANT = "per_channel_scale", "prequant_scaling_factor"
_ONE = (Scale(WEIGHT, "F32", "one"), Scale(INPUT, "F32", "one"))
_GROUPS = Scale(WEIGHT, "F32", "groups")
_PREQUANT = Scale(PREQUANT, "", "columns")
_FP4 = (Scale(WEIGHT, "F8_E4M3", "groups"), Scale(WEIGHT_2, "F32", "scalar"), Scale(INPUT, "F32", "scalar"))
_SQ = (Scale(WEIGHT, "F32", "rows"), Scale(INPUT, "F32", "one"), _PREQUANT)
_W4A8 = (_GROUPS, Scale(WEIGHT_2, "F32", "one"), Scale(INPUT, "F32", "one"), _PREQUANT)

# builder.py of 1.2.1 refuses INT8 and INT4 weight-only, SmoothQuant and per-channel/per-token on SM 100 - 119.
_TO_HOPPER = (80, 90)

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("none", None, "", 16, sm=(70, 121), experts=True),
        Format("fp8", "FP8", "F8_E4M3", 8, _ONE, "fp8-static", "inputs", sm=(89, 121), experts=True),
        Format("fp8_pc_pt", "FP8_PER_CHANNEL_PER_TOKEN", "F8_E4M3", 8, (Scale(CHANNEL, "F32", "rows"),), "fp8-token",
               sm=(89, 90)),
        Format("int8_sq", "W8A8_SQ_PER_CHANNEL", "I8", 8, _SQ, "int8-static", "search", prequant=True, sm=_TO_HOPPER),
        Format("int8_wo", "W8A16", "", 8, sm=_TO_HOPPER, experts=True),
        Format("int4_wo", "W4A16", "", 4, sm=_TO_HOPPER, experts=True),
        Format("int4_rtn", "W4A16_AWQ", "I8", 4.25, (_GROUPS,), group_size=128, sm=_TO_HOPPER),
        Format("int4_awq", "W4A16_AWQ", "I8", 4.25, (_GROUPS, _PREQUANT), calibration="search", group_size=128,
               prequant=True, sm=_TO_HOPPER),
        Format("w4a8_awq", "W4A8_AWQ", "I8", 4.25, _W4A8, "fp8-static", "search", group_size=128, prequant=True,
               sm=(89, 90)),
        Format("nvfp4", "NVFP4", "U8", 4.5, _FP4, "nvfp4-block", "inputs", group_size=16, sm=(100, 121)),
    )
}  # fmt: skip
"""By name in the configuration."""

KV_ALGOS: dict[str, str | None] = {"auto": None, "fp8": "FP8", "int8": "INT8"}
"""Configuration name of the KV cache → kv_cache_quant_algo."""
KV_LARGEST = {"FP8": 448.0, "INT8": 127.0}
"""The largest value a code of the KV cache stands for, at scale 1."""
KV_SCALE = "kv_cache_scaling_factor"

EXCLUDED = ("*lm_head", "*router", "*vocab_embedding", "*position_embedding", "*block_embedding", "*shared_expert_gate")
"""Modules that stay unquantized: the default of TensorRT-LLM's quantize.py, written out because a checkpoint that
names only lm_head (as modelopt's does) would lose the rest of that default."""


def quantization_block(fmt: Format, kv_cache: str = "auto", group_size: int | None = None) -> dict[str, Any]:
    """The `quantization` object of a checkpoint's config.json. `kv_cache` is a configuration name."""
    kv = KV_ALGOS[kv_cache]
    if fmt.quant_algo is None:
        return {"quant_algo": None, "kv_cache_quant_algo": kv}
    block: dict[str, Any] = {"quant_algo": fmt.quant_algo, "kv_cache_quant_algo": kv}
    if fmt.group_size is not None:
        block["group_size"] = group_size or fmt.group_size
    if fmt.packs_rows:
        block |= {"has_zero_point": False, "pre_quant_scale": fmt.prequant}
    return block | {"exclude_modules": list(EXCLUDED)}


def format_of(block: Mapping[str, Any]) -> Format | None:
    """The format that a `quantization` object names; None for one that is not in the table."""
    algo = block.get("quant_algo")
    found = [f for f in FORMATS.values() if f.quant_algo == algo]
    if len(found) > 1:  # W4A16_AWQ with and without a vector for the inputs
        found = [f for f in found if f.prequant == bool(block.get("pre_quant_scale"))]
    return found[0] if found else None
