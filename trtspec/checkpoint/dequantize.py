"""Codes and scales of one linear back into numbers, for every format of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trtspec.checkpoint.activations import fake_fp8
from trtspec.checkpoint.codecs import (
    E2M1_VALUES,
    E4M3_VALUES,
    Floats,
    decode,
    encode,
    per_block,
    unpack_columns,
    unpack_rows,
)
from trtspec.checkpoint.formats import CHANNEL, WEIGHT, WEIGHT_2, Format

if TYPE_CHECKING:
    from trtspec.checkpoint.readback import Stored


def values(fmt: Format, held: Stored, group: int) -> Floats:
    """What the codes stand for, [O, K] (experts: [E, O, K]) float32; plain weights as they are."""
    scale = held.scale(WEIGHT)
    if scale is None:
        scale = held.scale(CHANNEL)
    if scale is None:
        return decode(held.codes, held.dtype)
    if fmt.name == "nvfp4":
        second = held.scale(WEIGHT_2)
        blocks = scale * (np.float32(1.0) if second is None else second)
        return (E2M1_VALUES[unpack_columns(held.codes)] * per_block(blocks, group)).astype(np.float32)
    if group:
        return (unpack_rows(held.codes).astype(np.float32) * per_block(scale, group)).astype(np.float32)
    # Older writers store E4M3 as integers of its width.
    codes = E4M3_VALUES[held.codes.view(np.uint8)] if fmt.stored == "F8_E4M3" else decode(held.codes, held.dtype)
    return (codes * _broad(scale, codes.ndim)).astype(np.float32)


def executed(fmt: Format, held: Stored, group: int) -> Floats:
    """The matrix that multiplies the quantized inputs. W4A8 turns the INT4 values into FP8 first."""
    found = values(fmt, held, group)
    second = held.scale(WEIGHT_2)
    if fmt.name == "w4a8_awq" and second is not None:
        return fake_fp8(found, second.reshape(-1)[0])
    return found


def as_built(fmt: Format, held: Stored) -> Floats:
    """What the engine builder makes of plain weights under W8A16 or W4A16.

    symmetric_quantize in TensorRT-LLM's cutlass_preprocessors.cpp: a scale of amax ÷ 2^(bits-1) for each output,
    kept in the model's type; codes are rounded with the unrounded scale and clipped to [-2^(bits-1), 2^(bits-1) - 1].
    """
    plain = decode(held.codes, held.dtype)
    top = np.float32(2 ** (fmt.bits - 1))
    exact = (np.max(np.abs(plain), axis=-1, keepdims=True) / top).astype(np.float32)
    codes = np.clip(_round_half_away(plain / np.where(exact == 0, np.float32(1.0), exact)), -top, top - 1)
    return (codes * decode(encode(exact, held.dtype), held.dtype)).astype(np.float32)


def _round_half_away(x: Floats) -> Floats:
    """C's round(): halves go away from zero."""
    return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x).astype(np.float32)


def _broad(scale: Floats, ndim: int) -> Floats:
    """[] or [1] as it is; [O] and [E, 1] with axes appended until they reach over the columns."""
    if scale.size == 1:
        return scale.reshape((1,) * ndim)
    flat = scale.reshape(-1) if ndim == 2 else scale
    return flat.reshape(*flat.shape, *(1,) * (ndim - flat.ndim))
