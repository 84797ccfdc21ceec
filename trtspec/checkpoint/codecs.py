"""The number formats of checkpoints, with numpy alone: bfloat16, FP8 E4M3, FP4 E2M1 and packed INT4, both ways.

Codes are held in the unsigned integer of their width; values in float32. Rounding is to nearest, ties to even.
E4M3 is the finite variant (OCP 8-bit floating point 1.0: bias 7, no infinity, 0x7F is NaN, largest 448); E2M1 is
OCP Microscaling 1.0's element (0, ½, 1, 1½, 2, 3, 4, 6 and their negatives).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[Any]

E4M3_MAX = 448.0
E2M1_MAX = 6.0

VIEWS = {
    "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8",
    "F8_E4M3": "u1", "U8": "u1", "I8": "i1", "I32": "<i4", "I64": "<i8", "U32": "<u4", "I16": "<i2", "BOOL": "?",
}  # fmt: skip
"""safetensors type → the numpy type that holds its codes; BF16 and F8_E4M3 as unsigned integers."""


def decode(codes: Codes, dtype: str) -> Floats:
    """Values of codes of the safetensors type `dtype` as float32, same shape. KeyError-free: other types raise."""
    if dtype == "BF16":
        return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "F8_E4M3":
        return E4M3_VALUES[codes]
    if dtype in ("F32", "F16", "F64", "I8", "U8"):
        return codes.astype(np.float32)
    raise ValueError(f"{dtype} holds no weights")


def encode(values: Floats, dtype: str) -> Codes:
    """Codes of type F32, F16, BF16 or F8_E4M3 nearest to `values`; same shape."""
    if dtype == "F32":
        return values.astype(np.float32)
    if dtype == "F16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16)
    if dtype == "BF16":
        return encode_bf16(values)
    if dtype == "F8_E4M3":
        return encode_e4m3(values)
    raise ValueError(f"cannot write {dtype}")


def encode_bf16(values: Floats) -> npt.NDArray[np.uint16]:
    """The upper half of a float32, rounded; a NaN stays a quiet NaN of its sign."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    quiet = bits | np.uint32(0x0040_0000)
    return (np.where(np.isnan(values), quiet, rounded) >> np.uint32(16)).astype(np.uint16)


def encode_e4m3(values: Floats) -> Bytes:
    """E4M3 codes. What lies beyond 448 becomes 448, as quantizing kernels saturate; NaN stays NaN."""
    wide = np.ascontiguousarray(values, np.float32)
    bits = wide.view(np.uint32)
    magnitude = bits & np.uint32(0x7FFF_FFFF)
    # Keep 3 of 23 mantissa bits, then move the exponent's bias from 127 to 7.
    rounded = magnitude + np.uint32(0x7_FFFF) + ((magnitude >> np.uint32(20)) & np.uint32(1))
    normal = (rounded >> np.uint32(20)).astype(np.int32) - ((127 - 7) << 3)
    with np.errstate(invalid="ignore"):
        small = np.rint(np.minimum(np.abs(wide), np.float32(1.0)) * np.float32(512.0))
    # Below 2^-6 the steps are 2^-9; step 8 is the smallest normal number's code.
    found = np.where(magnitude < np.uint32(0x3C80_0000), np.nan_to_num(small).astype(np.int32), normal)
    found = np.where(np.isnan(wide), 0x7F, np.minimum(found, 0x7E))
    return (found.astype(np.uint8) | ((bits >> np.uint32(24)) & np.uint32(0x80)).astype(np.uint8)).astype(np.uint8)


def encode_e2m1(values: Floats) -> Bytes:
    """E2M1 codes (0-15, sign in bit 3); saturates at 6. A negative value that rounds to zero keeps its sign."""
    magnitude = np.abs(values)
    code = np.searchsorted(_E2M1_BOUNDS, magnitude, side="left").astype(np.uint8)
    # Ties go to the even code: the bounds ½·(1+½), ½·(2+1½), ½·(4+3) lie above an odd one.
    tie = np.isin(magnitude, _E2M1_BOUNDS[1::2])
    return code + tie.astype(np.uint8) + ((values < 0).astype(np.uint8) << np.uint8(3))


def pack_columns(codes: Bytes) -> Bytes:
    """Two 4-bit codes of neighbouring columns in a byte, the first in the low half: [.., K] → [.., K/2]."""
    return codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))


def unpack_columns(packed: Bytes) -> Bytes:
    """The inverse of :func:`pack_columns`."""
    found = np.empty((*packed.shape[:-1], packed.shape[-1] * 2), np.uint8)
    found[..., 0::2], found[..., 1::2] = packed & np.uint8(0xF), packed >> np.uint8(4)
    return found


def pack_rows(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Two signed 4-bit codes of neighbouring rows in a byte, the even row low: [.., O, K] → [.., O/2, K]."""
    nibbles = codes.view(np.uint8) & np.uint8(0xF)
    return (nibbles[..., 0::2, :] | (nibbles[..., 1::2, :] << np.uint8(4))).view(np.int8)


def unpack_rows(packed: Codes) -> npt.NDArray[np.int8]:
    """The inverse of :func:`pack_rows`: signed codes -8 to 7."""
    raw = packed.view(np.int8)
    found = np.empty((*raw.shape[:-2], raw.shape[-2] * 2, raw.shape[-1]), np.int8)
    found[..., 0::2, :] = (raw << np.int8(4)) >> np.int8(4)
    found[..., 1::2, :] = raw >> np.int8(4)
    return found


def per_block(scales: Floats, block: int) -> Floats:
    """Scales of blocks of `block` columns, one for each column: [.., K/block] → [.., K]."""
    return np.repeat(scales, block, axis=-1)


def _e4m3_values() -> Floats:
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    normal = np.ldexp(1.0 + mantissa / 8.0, exponent - 7)
    found = np.where(exponent == 0, np.ldexp(mantissa / 8.0, -6), normal)
    found[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -found, found).astype(np.float32)


E4M3_VALUES = _e4m3_values()
"""Value of each E4M3 code; [256] float32."""
E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""Value of each E2M1 code; [16] float32."""
_E2M1_BOUNDS = ((E2M1_VALUES[:7] + E2M1_VALUES[1:8]) / 2).astype(np.float32)
