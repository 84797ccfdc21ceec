"""How far a quantized weight may lie from its source: the rounding error of each format, element by element.

| format | largest error of a weight w with scale s |
|---|---|
| FP8 E4M3 | max(|w| / 16, s / 1024): half a step of a 3-bit mantissa, half the smallest step near zero |
| INT8, INT4 | s / 2: half a step |
| NVFP4 | s / 4 up to 2 s, s / 2 up to 4 s, s up to 6 s: half the gap of E2M1 there; above 6 s what the rounding of the block scale (E4M3) cut off, at most 6 s / 16 or 6 / 1024 of the second scale |

Where inputs are multiplied by a vector first (SmoothQuant, AWQ), s counts for the weights divided by it, and the
multiplication itself was rounded in the model's type (`ROUNDINGS` times).
Formats: OCP 8-bit floating point 1.0, OCP Microscaling 1.0.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trtspec.checkpoint.codecs import Floats, per_block
from trtspec.checkpoint.formats import CHANNEL, PREQUANT, WEIGHT, WEIGHT_2, Format
from trtspec.checkpoint.readback import Stored

SLACK = np.float32(1.0 + 2.0**-10)
"""float32 arithmetic of whoever quantized."""
ROUNDINGS = 6
"""What nvidia-modelopt 0.47 rounds to the model's type on the way: the vector, its inverse and the product, then, where
fused matrices are brought to one vector, that vector, its ratio to the old one and the product again."""
HALF_STEP = {"BF16": 2.0**-9, "F16": 2.0**-12, "F32": 2.0**-25}
"""Relative error of one rounding to the model's type."""


@dataclass(frozen=True)
class Bounds:
    """The bounds of one linear. Its rows are those of all experts one after the other, where there are several."""

    fmt: Format
    scales: Floats
    """[rows or 1, groups or 1]: s of each row's groups of columns."""
    group: int
    """Columns of a group; 0: a row has one scale."""
    second: np.float32
    prequant: Floats | None
    dtype: str
    """safetensors type of the model, in which the source was multiplied before it was quantized."""

    @classmethod
    def of(cls, fmt: Format, held: Stored, rows: int, group: int, dtype: str) -> Bounds:
        """From the scales that are stored beside the codes of a linear with so many rows."""
        scale, second = held.scale(WEIGHT), held.scale(WEIGHT_2)
        if scale is None:
            scale = held.scale(CHANNEL)
        if scale is None:
            raise ValueError("no scales")
        two = np.float32(0.0) if second is None else second.reshape(-1)[0]
        if fmt.name == "nvfp4" and second is not None:
            scale = scale * second
        flat = scale.reshape(-1, scale.shape[-1]) if group else scale.reshape(-1, 1)
        # One scale for each expert counts for all of its rows.
        each = flat if len(flat) in (1, rows) else np.repeat(flat, rows // len(flat), axis=0)
        return cls(fmt, each, group, two, held.scale(PREQUANT), dtype)

    def allowed(self, source: Floats, first: int) -> Floats:
        """Largest error of each element of the rows `source` [n, K] from row `first` on, in the source's terms."""
        scale = self.scales if len(self.scales) == 1 else self.scales[first : first + len(source)]
        scale = per_block(scale, self.group) if self.group else scale
        if self.prequant is None:
            return np.asarray(_rounding(self.fmt, np.abs(source), scale, self.second) * SLACK, np.float32)
        # A column that was multiplied by zero holds nothing: its error in the source's terms is the source itself.
        factor = np.where(self.prequant == 0, np.float32(1.0), np.abs(self.prequant))
        inner = np.abs(source) / factor
        found = _rounding(self.fmt, inner, scale, self.second) + inner * np.float32(ROUNDINGS * HALF_STEP[self.dtype])
        return np.asarray(found * factor * SLACK, np.float32)


def _rounding(fmt: Format, inner: Floats, scale: Floats, second: np.float32) -> Floats:
    if fmt.stored == "F8_E4M3":
        return np.maximum(inner * np.float32(2.0**-4), scale * np.float32(2.0**-10))
    if fmt.name != "nvfp4":
        return np.asarray(scale * np.float32(0.5) + inner * np.float32(2.0**-23), np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.nan_to_num(inner / scale, nan=0.0, posinf=np.inf)
    gap = np.where(steps <= 2, np.float32(0.25), np.where(steps <= 4, np.float32(0.5), np.float32(1.0))) * scale
    cut = np.maximum(inner - np.float32(6.0) * scale, np.float32(0.0))
    allowed = np.maximum(scale * np.float32(6 * 2.0**-4), second * np.float32(6 * 2.0**-10))
    return np.maximum(gap, np.minimum(cut, allowed) * (cut > 0)).astype(np.float32)
