"""What quantized linears do to their inputs, imitated in float32 so that its effect can be measured without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trtspec.checkpoint.codecs import E2M1_MAX, E2M1_VALUES, E4M3_MAX, E4M3_VALUES, Floats, encode_e2m1, encode_e4m3
from trtspec.checkpoint.formats import Activation


@dataclass(frozen=True)
class ActivationQuant:
    """How one linear quantizes its inputs.

    `scale` (static kinds: value of code 1; nvfp4-block: the scale of the block scales) is None for fp8-token, which
    finds one for each token. `prequant`, where there is one, multiplies the inputs first; [K] float32.
    """

    kind: Activation
    scale: float | None = None
    prequant: Floats | None = None
    block: int = 16

    def apply(self, inputs: Floats) -> Floats:
        """Inputs [.., K] as the linear's kernel sees them: multiplied, quantized and dequantized; float32."""
        x: Floats = inputs if self.prequant is None else (inputs * self.prequant).astype(np.float32)
        if self.kind == "fp8-static":
            return fake_fp8(x, np.float32(self.scale or 1.0))
        if self.kind == "fp8-token":
            return fake_fp8(x, row_scales(x, E4M3_MAX))
        if self.kind == "int8-static":
            scale = np.float32(self.scale or 1.0)
            codes: Floats = np.clip(np.rint(x / scale), -128, 127)
            return (codes * scale).astype(np.float32)
        if self.kind == "nvfp4-block":
            return fake_nvfp4(x, np.float32(self.scale or 1.0), self.block)
        return x


def row_scales(values: Floats, largest: float) -> Floats:
    """Scale of each row (last axis) so that its largest magnitude becomes `largest`; 1 for a row of zeros; [.., 1]."""
    amax = np.max(np.abs(values), axis=-1, keepdims=True)
    return np.where(amax == 0, np.float32(1.0), amax / np.float32(largest)).astype(np.float32)


def fake_fp8(values: Floats, scale: Floats | np.float32) -> Floats:
    """Values after E4M3 with `scale` and back; beyond 448 × scale they saturate."""
    return (E4M3_VALUES[encode_e4m3(values / scale)] * scale).astype(np.float32)


def fake_nvfp4(values: Floats, scale_2: np.float32, block: int) -> Floats:
    """Values after E2M1 with an E4M3 scale for each `block` columns, itself in units of `scale_2`, and back."""
    blocks = values.reshape(*values.shape[:-1], -1, block)
    amax = np.max(np.abs(blocks), axis=-1, keepdims=True)
    ratio = np.clip(amax / (np.float32(E2M1_MAX) * scale_2), 2.0**-9, E4M3_MAX).astype(np.float32)
    scale = E4M3_VALUES[encode_e4m3(ratio)] * scale_2
    return (E2M1_VALUES[encode_e2m1(blocks / scale)] * scale).astype(np.float32).reshape(values.shape)
