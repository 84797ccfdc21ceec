"""Inverse frequencies of rotary embedding for every scaling type, in float32 as transformers computes them.

default, linear, llama3, yarn: one set. longrope: two sets, for sequences up to the original length and for longer ones;
all of a sequence's tokens are turned by the same set. dynamic: beyond the original length a set for each length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.modelconfig import ModelConfig
from trtspec.errors import ModelFileError

Frequencies = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rope:
    """What turns the heads: `base` θ, `dim` turned elements of each head, the scaling and what it refers to."""

    base: float
    dim: int
    scaling: Mapping[str, Any]
    trained: int
    """max_position_embeddings as config.json states it"""
    original: int | None
    """original_max_position_embeddings, where config.json states it"""
    where: Path

    @classmethod
    def of(cls, config: ModelConfig, where: Path, local: bool = False) -> Rope:
        """Of the model, or (`local`) of its windowed layers, where those have a base of their own."""
        dim = config.rotary_dim or config.head_size
        trained = config.trained_positions or config.max_positions
        if local and config.local_base is not None:
            return cls(config.local_base, dim, {}, trained, None, where)
        return cls(config.rotary_base, dim, config.rotary_scaling or {}, trained, config.original_positions, where)

    @property
    def kind(self) -> str:
        """The scaling type; `su` is an old name of longrope."""
        name = str(self.scaling.get("rope_type", self.scaling.get("type")) or "default")
        return {"su": "longrope"}.get(name, name)

    @property
    def boundary(self) -> int | None:
        """longrope: sequences longer than this are turned by the long set; None for other types."""
        return (self.original or self.trained) if self.kind == "longrope" else None

    def plain(self, base: float | None = None) -> Frequencies:
        """[dim / 2] radians per position without scaling."""
        exponent = np.arange(0, self.dim, 2, dtype=np.float32) / np.float32(self.dim)
        powers = np.float32(self.base if base is None else base) ** exponent
        return (np.float32(1.0) / powers).astype(np.float32)

    def sets(self) -> tuple[tuple[Frequencies, ...], float]:
        """The sets of frequencies ([dim / 2] radians per position each; two for longrope, else one), and the factor
        on cosine and sine. ModelFileError for an unknown type or one whose parameters are missing or senseless."""
        if self.kind not in _TYPES:
            raise ModelFileError(
                "rotary_scaling of this type is not supported",
                where=self.where,
                found=self.kind,
                expected=" or ".join(_TYPES),
            )
        try:
            return _TYPES[self.kind](self)
        except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ModelFileError(
                f"rotary_scaling of type {self.kind} cannot be used: {detail}", where=self.where
            ) from None

    def number(self, key: str, default: float | None = None) -> float:
        """A positive parameter of the scaling. KeyError when it is absent and has no default."""
        value = self.scaling.get(key)
        if value is None:
            if default is None:
                raise KeyError(key)
            return default
        if isinstance(value, bool) or not 0 < float(value) < math.inf:
            raise ValueError(f"{key} is {value!r}, not a positive number")
        return float(value)


Sets = tuple[tuple[Frequencies, ...], float]


def _default(rope: Rope) -> Sets:
    return (rope.plain(),), 1.0


def _linear(rope: Rope) -> Sets:
    return (rope.plain() / np.float32(rope.number("factor")),), 1.0


def _llama3(rope: Rope) -> Sets:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended linearly in 1/wavelength."""
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    factor, original = rope.number("factor"), rope.number("original_max_position_embeddings")
    if low >= high:
        raise ValueError("low_freq_factor is not below high_freq_factor")
    frequencies = rope.plain()
    turns = original * frequencies / np.float32(2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0).astype(np.float32)
    return (((1 - blend) * frequencies / np.float32(factor) + blend * frequencies).astype(np.float32),), 1.0


def _yarn(rope: Rope) -> Sets:
    """Peng et al. 2023: stretched where a wavelength outgrows the original context, kept where it turns often, a
    linear ramp over the dimensions between."""
    factor = rope.number("factor")
    first, last = (
        rope.dim * math.log((rope.original or rope.trained) / (turns * 2 * math.pi)) / (2 * math.log(rope.base))
        for turns in (rope.number("beta_fast", 32), rope.number("beta_slow", 1))
    )
    if rope.scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dim - 1)
    steps = np.arange(rope.dim // 2, dtype=np.float32)
    ramp = np.clip((steps - np.float32(first)) / np.float32((last - first) or 0.001), 0, 1).astype(np.float32)
    plain = rope.plain()
    return ((plain / np.float32(factor) * ramp + plain * (1 - ramp)).astype(np.float32),), _yarn_factor(rope, factor)


def _yarn_factor(rope: Rope, factor: float) -> float:
    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.scaling.get("attention_factor") is not None:
        return rope.number("attention_factor")
    if rope.scaling.get("mscale") and rope.scaling.get("mscale_all_dim"):
        return mscale(rope.number("mscale")) / mscale(rope.number("mscale_all_dim"))
    return mscale(1.0)


def _longrope(rope: Rope) -> Sets:
    """Ding et al. 2024: each dimension stretched by its own factor, from one of two lists."""
    exponent = np.arange(0, rope.dim, 2, dtype=np.float32) / np.float32(rope.dim)
    powers = np.float32(rope.base) ** exponent
    sets = tuple(np.float32(1.0) / (_factors(rope, key) * powers) for key in ("short_factor", "long_factor"))
    if rope.scaling.get("attention_factor") is not None:
        return sets, rope.number("attention_factor")
    original = rope.original or rope.trained
    factor = rope.number("factor", rope.trained / original)
    return sets, math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def _factors(rope: Rope, key: str) -> Frequencies:
    found = np.asarray(rope.scaling[key], dtype=np.float32)
    if found.shape != (rope.dim // 2,) or not (np.isfinite(found) & (found > 0)).all():
        raise ValueError(f"{key} is not a list of {rope.dim // 2} positive numbers")
    return found


def _dynamic(rope: Rope) -> Sets:
    rope.number("factor")
    if rope.dim <= 2:
        raise ValueError("it needs more than two turned elements")
    return (rope.plain(),), 1.0


def dynamic_set(rope: Rope, length: int) -> Frequencies:
    """[dim / 2] for the last token of a sequence of `length` > trained tokens (NTK-aware scaling, base by length)."""
    factor = rope.number("factor")
    stretch = factor * length / rope.trained - (factor - 1)
    return rope.plain(rope.base * stretch ** (rope.dim / (rope.dim - 2)))


_TYPES: dict[str, Callable[[Rope], Sets]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "dynamic": _dynamic,
}
