"""Change the type of a stream of weights in bounded blocks: float32, float16, bfloat16, with numpy only.

Rounding is to nearest, ties to even, as torch and the hardware do. bfloat16 is the upper half of a float32.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trtspec.errors import BuildError

Buffer = bytes | bytearray | memoryview
STORED = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""Configuration name → safetensors name."""
NAMES = {stored: name for name, stored in STORED.items()}


def cast(data: Buffer, source: str, result: str, tensor: str, *, plus_one: bool = False) -> Buffer:
    """`data` of safetensors type `source` as `result`, plus one if asked: added in float32, rounded once.

    BuildError when a finite value would become infinite.
    """
    if source == result and not plus_one:
        return data
    wide = _widen(data, source)
    if plus_one:
        wide = wide + np.float32(1)
    if result == "F32":
        return wide.tobytes()
    narrow = _narrow(wide, result)
    lost = np.isfinite(wide) & ~np.isfinite(_widen(narrow, result))
    if lost.any():
        raise BuildError(
            f"a weight of {tensor!r} is too large for {NAMES[result]}",
            found=float(wide[lost][0]),
            fix="convert with dtype bfloat16 or float32",
        )
    return narrow


def _widen(data: Buffer, source: str) -> npt.NDArray[np.float32]:
    if source == "BF16":
        bits = np.frombuffer(data, "<u2").astype("<u4") << np.uint32(16)
        return bits.view("<f4")
    return np.frombuffer(data, "<f2" if source == "F16" else "<f4").astype("<f4")


def _narrow(wide: npt.NDArray[np.float32], result: str) -> bytes:
    if result == "F16":
        with np.errstate(over="ignore"):
            return wide.astype("<f2").tobytes()
    bits = wide.view("<u4")
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    # Rounding a NaN could carry into the exponent and make it finite or infinite; a quiet NaN of the same sign stays.
    quiet = bits | np.uint32(0x0040_0000)
    return (np.where(np.isnan(wide), quiet, rounded) >> np.uint32(16)).astype("<u2").tobytes()
