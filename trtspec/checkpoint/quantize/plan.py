"""From the plan of a conversion to that of a quantized checkpoint; all is checked before a byte is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from trtspec.checkpoint.cast import STORED
from trtspec.checkpoint.families import Rule
from trtspec.checkpoint.formats import FORMATS, KV_ALGOS, KV_LARGEST, Format, quantization_block
from trtspec.checkpoint.layout import Cut
from trtspec.checkpoint.pieces import Piece, PieceTensor, Writable
from trtspec.checkpoint.plan import Plan, RankPlan
from trtspec.checkpoint.quantize.blocks import Once
from trtspec.checkpoint.quantize.calibration import Calibration
from trtspec.checkpoint.quantize.computed import constant
from trtspec.checkpoint.quantize.linear import Linear
from trtspec.errors import ConfigError, ModelFileError

LINEARS = ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj")
ONE_SCALE = ("fp8", "nvfp4")
"""Formats with one scale for a whole matrix, which fused matrices must share."""
LARGE_KV = 0.5
"""An FP8 cache scale above this is worth a warning (modelopt's own threshold): keys or values exceed half of 448."""


def quantized(
    plan: Plan, weights: str, kv_cache: str = "auto", group_size: int = 128, calibration: Calibration | None = None
) -> Plan:
    """The same model with its linears in the format `weights` and its KV cache in `kv_cache` (configuration names).

    ConfigError: the format cannot hold this model so split, or needs a calibration that is not given.
    BuildError: the calibration lacks a linear.
    """
    fmt = FORMATS[weights]
    held = plan.config["quantization"]
    if held["quant_algo"] or held["kv_cache_quant_algo"]:
        raise ConfigError(
            "the model is quantized already", where=plan.facts.path, found=held["quant_algo"],
            fix="leave its quantization at `none`: it is converted as it is; or use the unquantized model",
        )  # fmt: skip
    _check_calibration(fmt, kv_cache, calibration, plan.facts.path)
    work = _Work(plan, fmt, group_size if fmt.group_size == 128 else fmt.group_size or 0, kv_cache, calibration)
    ranks = tuple(replace(rank, tensors=tuple(work.rank(rank))) for rank in plan.ranks)
    config = {**plan.config, "quantization": quantization_block(fmt, kv_cache, group_size if fmt.packs_rows else None)}
    return replace(plan, ranks=ranks, config=config, warnings=(*plan.warnings, *work.warnings()))


def _check_calibration(fmt: Format, kv_cache: str, calibration: Calibration | None, where: Path) -> None:
    if calibration is None and (fmt.calibration != "none" or kv_cache != "auto"):
        what = f"{fmt.name} weights have" if fmt.calibration != "none" else f"an {kv_cache} KV cache has"
        free = ", ".join(f.name for f in FORMATS.values() if f.calibration == "none" and f.quant_algo)
        raise ConfigError(
            f"{what} static scales, which come from calibration",
            where=where,
            found="no calibration",
            fix=f"give prompts to calibrate with; without them: {free}, with kv_cache auto",
        )


class _Work:
    """One model on its way into a format."""

    def __init__(self, plan: Plan, fmt: Format, group: int, kv_cache: str, calibration: Calibration | None) -> None:
        self.plan, self.fmt, self.group, self.calibration = plan, fmt, group, calibration
        self.kv = KV_ALGOS[kv_cache]
        self.rules: Mapping[str, Rule] = {rule.named(0): rule for rule in plan.rules}
        self.once = Once()
        self.dtype = STORED[plan.config["dtype"]]
        if fmt.stored and self.dtype == "F32" and fmt.prequant:
            raise ConfigError(
                f"{fmt.name} multiplies inputs in 16 bits",
                where=plan.facts.path,
                found="float32 weights",
                fix="set dtype: bfloat16",
            )

    def rank(self, rank: RankPlan) -> Iterator[Writable]:
        """The rank's tensors in this format."""
        for tensor in rank.tensors:
            rule = self.rules.get(tensor.rule) if isinstance(tensor, PieceTensor) else None
            if rule is None or not isinstance(tensor, PieceTensor) or not _is_linear(rule):
                yield tensor
                continue
            if self.fmt.stored:
                yield from self._linear(rule, tensor).tensors()
            else:
                self._check_late(rule, tensor)
                yield tensor
            if self.kv and rule.name == "attention.qkv.weight":
                yield from self._cache(rule, tensor)

    def warnings(self) -> tuple[str, ...]:
        """What the user should know of the scales."""
        if self.kv != "FP8" or self.calibration is None:
            return ()
        large = [
            rule.layer
            for rule in self.plan.rules
            if rule.name == "attention.qkv.weight" and max(self._seen(rule)) / KV_LARGEST["FP8"] > LARGE_KV
        ]
        if not large:
            return ()
        return (
            f"keys or values of {len(large)} layers exceed half of what FP8 holds (first: layer {large[0]}); "
            "an FP8 KV cache may cost accuracy there, as reported for Qwen2.5",
        )

    def _linear(self, rule: Rule, tensor: PieceTensor) -> Linear:
        sharing = self._sharing(rule)
        whole = tuple(piece for member in sharing for piece in self._pieces(member))
        names = tuple(part.name.removesuffix(".weight") for part in rule.parts)
        linear = Linear(
            tensor, whole, sharing[0].named(0), names, rule.stacked, self.dtype, self.fmt, self.group,
            self.calibration, self.once,
        )  # fmt: skip
        self._check(rule, tensor)
        if self.fmt.activation.endswith("static") or self.fmt.activation == "nvfp4-block":
            linear.largest_input()  # BuildError now, not after hours of writing
        elif self.fmt.prequant:
            linear.vector()
        return linear

    def _sharing(self, rule: Rule) -> tuple[Rule, ...]:
        """The rules whose weights share the scale of the tensor: TensorRT-LLM may run gate and up as one matrix."""
        names = [f"transformer.layers.{rule.layer}.mlp.{kind}.weight" for kind in ("fc", "gate")]
        if self.fmt.name in ONE_SCALE and rule.named(0) in names and all(name in self.rules for name in names):
            return tuple(self.rules[name] for name in names)
        return (rule,)

    def _pieces(self, rule: Rule) -> Iterator[Piece]:
        for part in rule.parts:
            for piece in Cut(1, 0).pieces(part, self.plan.sources[part.name]):
                if isinstance(piece, Piece):
                    yield piece

    def _check(self, rule: Rule, tensor: PieceTensor) -> None:
        if rule.stacked and not self.fmt.experts:
            held = ", ".join(f.name for f in FORMATS.values() if f.experts)
            raise ConfigError(
                f"experts cannot be stored as {self.fmt.name}",
                where=self.plan.facts.path,
                expected=held,
                fix="choose one of these; the layout of other scales for experts is not documented upstream",
            )
        rows, columns = tensor.shape[-2:]
        tp = self.plan.layout.tensor
        if self.group and columns % self.group:
            raise ConfigError(
                f"{columns} columns of {rule.named(0)} on each of {tp} ranks are no multiple of the group {self.group}",
                where=self.plan.facts.path,
                fix=self._regroup(rule.parts[0].shape[1]),
            )
        if self.fmt.packs_rows and rows % 2:
            raise ConfigError(
                f"{rows} rows of {rule.named(0)} on each of {tp} ranks cannot be packed in pairs",
                where=self.plan.facts.path,
                fix="choose another parallelism.tensor",
            )

    def _regroup(self, columns: int) -> str:
        """What would divide the columns: fewer ranks, a smaller group, or another format."""
        fitting = [tp for tp in (1, 2, 4, 8) if columns % (tp * self.group) == 0]
        smaller = self.fmt.packs_rows and self.fmt.name != "w4a8_awq" and self.group == 128
        half = [tp for tp in (1, 2, 4, 8) if columns % (tp * 64) == 0] if smaller else []
        found = [f"parallelism.tensor {' or '.join(map(str, fitting))}"] if fitting else []
        found += [f"group_size 64 with parallelism.tensor {' or '.join(map(str, half))}"] if half else []
        return "; ".join([*found, "fp8 or fp8_pc_pt, which have no groups"])

    def _check_late(self, rule: Rule, tensor: PieceTensor) -> None:
        if self.fmt.late and tensor.dtype == "F32":
            raise ConfigError(
                f"{self.fmt.name} needs 16-bit weights",
                where=self.plan.facts.path,
                found="float32",
                fix="set dtype: bfloat16 or float16",
            )
        if self.fmt.late and rule.stacked and not self.fmt.experts:
            raise ModelFileError(f"experts cannot be stored as {self.fmt.name}", where=self.plan.facts.path)

    def _seen(self, rule: Rule) -> tuple[float, float]:
        assert self.calibration is not None
        return self.calibration.cache(rule.parts[0].name.removesuffix(".weight"))

    def _cache(self, rule: Rule, tensor: PieceTensor) -> Iterator[Writable]:
        """Scales of K, of V and of both, as modelopt writes them for TensorRT-LLM.

        FP8 scales are at least 1: its precision is relative, so a smaller one gains nothing but clips outliers that
        calibration did not see (modelopt and TensorRT-LLM advise 1 as well).
        """
        assert self.kv is not None
        base = tensor.name.removesuffix("qkv.weight")
        k, v = (self._cache_scale(seen) for seen in self._seen(rule))
        for kind, scale in (("k", k), ("v", v), ("kv", np.maximum(k, v))):
            yield constant(f"{base}{kind}_cache_scaling_factor", scale)

    def _cache_scale(self, seen: float) -> np.float32:
        assert self.kv is not None
        scale = np.float32(seen) / np.float32(KV_LARGEST[self.kv])
        return np.maximum(scale, np.float32(1.0)) if self.kv == "FP8" else scale or np.float32(1.0)


def _is_linear(rule: Rule) -> bool:
    return rule.name.removesuffix(".weight") in LINEARS and rule.name.endswith(".weight")
