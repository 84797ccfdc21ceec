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
    return _E4M3_CODES[_odd_halves(values)]


def encode_e2m1(values: Floats) -> Bytes:
    """E2M1 codes (0-15, sign in bit 3); saturates at 6. A negative value that rounds to zero keeps its sign."""
    return _E2M1_CODES[_odd_halves(values)]


def _odd_halves(values: Floats) -> npt.NDArray[np.uint16]:
    """The upper halves of float32, their last bit set where the lower half is not zero.

    Rounding that to a format with at least two bits less is rounding the float32 once, so a table of 65536 codes does.
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    halves = (bits >> np.uint32(16)).astype(np.uint16)
    halves |= ((bits & np.uint32(0xFFFF)) != 0).view(np.uint8)
    return halves


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


def _codes(positive: Floats, sign: int) -> Bytes:
    """For every bfloat16: the code of the nearest of `positive` (a code is an index), ties to the even one."""
    with np.errstate(invalid="ignore"):  # signalling NaNs are among them
        every = decode(np.arange(65536, dtype=np.uint16), "BF16").astype(np.float64)
    magnitude = np.nan_to_num(np.abs(every), nan=0.0, posinf=1e300)
    bounds = (positive[:-1].astype(np.float64) + positive[1:]) / 2
    code = np.searchsorted(bounds, magnitude, side="left")
    code += (code < len(bounds)) & (magnitude == bounds[np.minimum(code, len(bounds) - 1)]) & (code % 2 == 1)
    code = np.where(np.isnan(every), len(positive), code)
    return np.asarray(code + np.where(np.signbit(every), sign, 0), np.uint8)


E4M3_VALUES = _e4m3_values()
"""Value of each E4M3 code; [256] float32."""
E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""Value of each E2M1 code; [16] float32."""
_E4M3_CODES = _codes(E4M3_VALUES[:127], 0x80)
_E2M1_CODES = _codes(E2M1_VALUES[:8], 0x8)
