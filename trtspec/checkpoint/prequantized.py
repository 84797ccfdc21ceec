"""Hugging Face checkpoints that are quantized already: which scheme, and whether TensorRT-LLM can hold it exactly.

modelopt (`hf_quant_config.json` or `quantization_config`), compressed-tensors 0.10+, AutoAWQ (`gemm` packing) and
GPTQ (v1 and v2). What cannot be converted bit for bit is refused with the reason, never requantized in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trtspec.checkpoint.facts import ModelFacts, read_config
from trtspec.checkpoint.formats import FORMATS, Format
from trtspec.checkpoint.header import TensorInfo
from trtspec.checkpoint.jsonfile import read_object
from trtspec.checkpoint.tensors import TensorSource
from trtspec.errors import ModelFileError

MODELOPT_CONFIG = "hf_quant_config.json"
AGAIN = "convert the unquantized model and let `trtspec quantize` write the format"
Packing = Literal["plain", "fp4", "awq", "gptq"]
"""plain: codes in place of the weights. fp4: two columns a byte. awq, gptq: int32 words of 4-bit codes, [in, out]."""
_SUFFIXES: Mapping[Packing, str] = {"plain": "weight", "fp4": "weight", "awq": "qweight", "gptq": "qweight"}
_SCALES = re.compile(
    r"(.+)\.(weight_scale|weight_scale_2|input_scale|qzeros|scales|g_idx|k_scale|v_scale|weight_zero_point)"
)


@dataclass(frozen=True)
class Scheme:
    """How a model is quantized already."""

    fmt: Format
    packing: Packing
    group: int
    kv_algo: str | None
    zero: int = 8
    """The stored zero point that stands for a symmetric code: awq and gptq."""

    def logical(self, source: TensorSource) -> TensorSource:
        """The same tensors as if they were not quantized: packed weights under their plain names, scales left out.

        The names and shapes are for planning; the bytes are not those of the type that is claimed.
        """
        plain = next((t.dtype for t in source.tensors.values() if t.name.endswith("norm.weight")), "BF16")
        shown = {}
        for name, info in source.tensors.items():
            if _SCALES.fullmatch(name):
                continue
            linear, _, suffix = name.rpartition(".")
            if suffix == "qweight":
                shown[f"{linear}.weight"] = replace(info, name=f"{linear}.weight", dtype=plain, shape=self._shape(info))
            elif self.is_coded(source, name):
                shown[name] = replace(info, dtype=plain, shape=self._shape(info))
            else:
                shown[name] = info
        return replace(source, tensors=shown)

    def is_coded(self, source: TensorSource, weight: str) -> bool:
        """Whether the linear of a `.weight` is held as codes."""
        linear = weight.removesuffix(".weight")
        if self.packing in ("awq", "gptq"):
            return f"{linear}.qweight" in source.tensors
        return f"{linear}.weight_scale" in source.tensors

    def holds(self, source: TensorSource, name: str) -> bool:
        """Whether a tensor holds codes or scales."""
        coded = name.endswith((".weight", ".qweight")) and self.is_coded(source, f"{name.rpartition('.')[0]}.weight")
        return coded or _SCALES.fullmatch(name) is not None

    def _shape(self, info: TensorInfo) -> tuple[int, ...]:
        if len(info.shape) != 2:
            raise ModelFileError(f"tensor {info.name!r} is not a matrix", where=info.path, found=list(info.shape))
        rows, columns = info.shape
        if self.packing == "fp4":
            return rows, columns * 2
        if self.packing == "awq":
            return columns * 8, rows
        return (columns, rows * 8) if self.packing == "gptq" else (rows, columns)


def scheme_of(facts: ModelFacts) -> Scheme | None:
    """The scheme of a model folder; None for plain weights. ModelFileError with the reason for what is refused."""
    folder = facts.path.parent
    block = read_config(folder).get("quantization_config")
    if not isinstance(block, dict):
        if not (folder / MODELOPT_CONFIG).is_file():
            return None
        block = {"quant_method": "modelopt"}
    method = block.get("quant_method")
    readers = {"modelopt": _modelopt, "compressed-tensors": _compressed, "awq": _awq, "gptq": _gptq}
    if method not in readers:
        raise refused(facts.path, f"quantized with {method!r}", f"known: {', '.join(readers)}")
    scheme = readers[method](block, facts.path)
    if facts.moe is not None and not scheme.fmt.experts:
        raise refused(facts.path, f"its experts are {scheme.fmt.name}", "TensorRT-LLM documents no layout for them")
    return scheme


def refused(where: Path, what: str, why: str) -> ModelFileError:
    """The one way to say no."""
    return ModelFileError(f"cannot be converted exactly: {what}", where=where, expected=why, fix=AGAIN)


def _modelopt(block: Mapping[str, Any], path: Path) -> Scheme:
    own = path.with_name(MODELOPT_CONFIG)
    found = block
    if own.is_file():
        inner = read_object(own).get("quantization")
        found = inner if isinstance(inner, dict) else {}
    algo = found.get("quant_algo")
    kv = found.get("kv_cache_quant_algo") or ("FP8" if block.get("kv_cache_scheme") else None)
    if kv not in (None, "FP8", "INT8"):
        raise refused(path, f"its KV cache is {kv}", "FP8 or INT8 in an engine's cache")
    if algo == "FP8":
        return Scheme(FORMATS["fp8"], "plain", 0, kv)
    if algo == "NVFP4":
        group = found.get("group_size", 16)
        if group != 16:
            raise refused(path, f"its NVFP4 blocks have {group} columns", "16")
        return Scheme(FORMATS["nvfp4"], "fp4", 16, kv)
    raise refused(path, f"modelopt's {algo}", "FP8 or NVFP4; AWQ exports have vectors folded into the norms")


def _compressed(block: Mapping[str, Any], path: Path) -> Scheme:
    groups = block.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise refused(path, "several kinds of layers", "one group for all linears")
    group = next(iter(groups.values()))
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise refused(path, "config_groups do not say how weights are stored", "an object `weights` in the group")
    inputs = group.get("input_activations")
    kind = (weights.get("type"), weights.get("num_bits"), weights.get("strategy"))
    if kind[:2] != ("float", 8) or kind[2] not in ("tensor", "channel") or weights.get("dynamic"):
        raise refused(path, f"weights are {kind}", "8-bit float with a scale for the tensor or for each channel")
    kv = "FP8" if block.get("kv_cache_scheme") else None
    if not isinstance(inputs, dict) or (inputs.get("type"), inputs.get("num_bits")) != ("float", 8):
        raise refused(path, "inputs are not quantized to 8-bit floats", "W8A8; TensorRT-LLM has no FP8 weight-only")
    if inputs.get("dynamic"):
        if inputs.get("strategy") != "token":
            raise refused(path, "inputs get a new scale for each tensor", "a scale for each token, or a stored one")
        return Scheme(FORMATS["fp8_pc_pt"], "plain", 0, kv)
    if kind[2] == "channel":
        raise refused(path, "a scale for each channel with a stored scale for the inputs", "one of both kinds")
    return Scheme(FORMATS["fp8"], "plain", 0, kv)


def _awq(block: Mapping[str, Any], path: Path) -> Scheme:
    if block.get("bits", block.get("w_bit")) != 4 or str(block.get("version", "gemm")).lower() != "gemm":
        raise refused(path, f"AWQ of {block.get('bits')} bits, version {block.get('version')}", "4 bits, version gemm")
    return Scheme(FORMATS["int4_rtn"], "awq", _group(block, path), None)


def _gptq(block: Mapping[str, Any], path: Path) -> Scheme:
    if block.get("bits") != 4:
        raise refused(path, f"GPTQ of {block.get('bits')} bits", "4 bits")
    # Version 1 stores zero points less one.
    zero = 8 if block.get("checkpoint_format") == "gptq_v2" else 7
    return Scheme(FORMATS["int4_rtn"], "gptq", _group(block, path), None, zero)


def _group(block: Mapping[str, Any], path: Path) -> int:
    group = block.get("group_size", block.get("q_group_size"))
    if group not in (64, 128):
        raise refused(path, f"group size {group}", "64 or 128, for which TensorRT-LLM has kernels")
    return int(group)


def packed_name(scheme: Scheme, weight: str) -> str:
    """The tensor that holds the codes of a `.weight`."""
    return f"{weight.removesuffix('.weight')}.{_SUFFIXES[scheme.packing]}"
