"""Rotary position embedding: inverse frequencies with Llama's scalings, and the table of rotations."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.config import ModelConfig
from trtspec.errors import ModelFileError


def inverse_frequencies(config: ModelConfig, where: Path) -> npt.NDArray[np.float32]:
    """[head_size / 2] radians per position. Scalings: linear, and llama3 (Llama 3.1's, by wavelength bands)."""
    exponent = np.arange(0, config.head_size, 2, dtype=np.float32) / np.float32(config.head_size)
    frequencies = (np.float32(1.0) / np.float32(config.rotary_base) ** exponent).astype(np.float32)
    scaling = config.rotary_scaling
    if scaling is None:
        return frequencies
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in (None, "default"):
        return frequencies
    try:
        if kind == "linear":
            return frequencies / np.float32(scaling["factor"])
        if kind == "llama3":
            return _llama3(frequencies, *(float(scaling[key]) for key in _LLAMA3_KEYS))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"rotary_scaling of type {kind} is incomplete: {error}", where=where) from None
    raise ModelFileError(
        "rotary_scaling of this type is not supported", where=where, found=kind, expected="linear or llama3"
    )


_LLAMA3_KEYS = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def _llama3(
    frequencies: npt.NDArray[np.float32], factor: float, low: float, high: float, original: float
) -> npt.NDArray[np.float32]:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended linearly in 1/wavelength."""
    if not (factor > 0 and 0 < low < high and original > 0):
        raise ValueError("factors must be positive and low_freq_factor below high_freq_factor")
    turns = original * frequencies / np.float32(2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0).astype(np.float32)
    return ((1 - blend) * frequencies / np.float32(factor) + blend * frequencies).astype(np.float32)


def rotations(config: ModelConfig, positions: int, where: Path) -> npt.NDArray[np.complex64]:
    """[positions, head_size / 2] unit rotations times head_size**-0.25.

    Queries and keys both carry that factor, so that their product comes out divided by sqrt(head_size).
    """
    angles = np.outer(np.arange(positions, dtype=np.float32), inverse_frequencies(config, where))
    scale = np.float32(config.head_size**-0.25)
    turned: npt.NDArray[np.complex64] = ((np.cos(angles) + 1j * np.sin(angles)) * scale).astype(np.complex64)
    return turned


def interleave(heads: int, head_size: int) -> npt.NDArray[np.int64]:
    """Row order that turns the half-rotation layout [0, D/2, ...] into neighbouring (real, imaginary) pairs."""
    one = np.arange(head_size).reshape(2, head_size // 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * head_size + one).reshape(-1)
