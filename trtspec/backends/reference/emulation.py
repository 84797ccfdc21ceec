"""Products whose inputs are rounded as a quantized engine rounds them, in float32. TorchScript compiles them.

Emulated, for each linear of a quantized checkpoint: the vector that multiplies its inputs (AWQ, SmoothQuant), then
FP8 with a static scale, FP8 with a scale for each token, INT8 with a static scale, or NVFP4 (blocks of columns with an
FP8 scale in units of a static one); then the product with the dequantized weights. The cache: keys (turned) and values
are rounded to FP8 or INT8 when they are written (:meth:`Forward.rounded`).

Not emulated: 16-bit rounding of what products give out and of the residual stream, sums in the order of a GPU's
kernels, queries and softmax weights in FP8 (`use_fp8_context_fmha`), and kernels that use a new token's own key and
value before they are rounded into the cache. Experts of a mixture share the settings of their layer's linear.
"""

import torch
from torch import Tensor

from trtspec.backends.reference.linear import Linear
from trtspec.backends.reference.products import Products
from trtspec.checkpoint.activations import ActivationQuant

MODES = {"none": 0, "fp8-static": 1, "fp8-token": 2, "int8-static": 3, "nvfp4-block": 4}


class EmulatedProducts(Products):
    """`modes`, `scales`, `multipliers` (empty: none) and `blocks` of each product's inputs."""

    modes: list[int]
    scales: list[float]
    multipliers: list[Tensor]
    blocks: list[int]

    def __init__(self, linear: Linear) -> None:
        super().__init__(linear)
        self.modes, self.scales, self.multipliers, self.blocks = [], [], [], []

    def add(self, weight: Tensor, bias: Tensor | None, inputs: ActivationQuant | None = None) -> None:
        """The next product, and what happens to its inputs."""
        super().add(weight, bias)
        vector = None if inputs is None else inputs.prequant
        self.modes.append(0 if inputs is None else MODES[inputs.kind])
        self.scales.append(1.0 if inputs is None or inputs.scale is None else inputs.scale)
        self.multipliers.append(torch.empty(0) if vector is None else torch.from_numpy(vector))
        self.blocks.append(16 if inputs is None else inputs.block)

    def forward(self, x: Tensor, j: int) -> Tensor:
        """As :meth:`Products.forward`, after the rounding of `x`."""
        return self.linear(self.rounded(x, j), self.weights[j], self.biases[j])

    def gated(self, x: Tensor, j: int) -> Tensor:
        """As :meth:`Products.gated`."""
        a, b = self.rounded(x, j), self.rounded(x, j + 1)
        return self.linear.gated(a, self.weights[j], self.biases[j], b, self.weights[j + 1], self.biases[j + 1])

    def rounded(self, x: Tensor, j: int) -> Tensor:
        """[rows, in] float32 as the kernel of product j sees them."""
        if self.multipliers[j].shape[0] > 0:
            x = x.mul(self.multipliers[j])
        mode, scale = self.modes[j], self.scales[j]
        if mode == 1:
            return self.fp8(x.div(scale)).mul_(scale)
        if mode == 2:
            row = x.abs().amax(-1, keepdim=True).div_(448.0)
            row = torch.where(row == 0, torch.ones_like(row), row)
            return self.fp8(x.div(row)).mul_(row)
        if mode == 3:
            return x.div(scale).round_().clamp_(-128.0, 127.0).mul_(scale)
        if mode == 4:
            return self.fp4_blocks(x, scale, self.blocks[j])
        return x

    def fp8(self, x: Tensor) -> Tensor:
        """To E4M3 and back; larger values saturate."""
        return x.clamp(-448.0, 448.0).to(torch.float8_e4m3fn).float()

    def fp4_blocks(self, x: Tensor, scale: float, block: int) -> Tensor:
        """To E2M1 in blocks of columns and back. The steps between values are 0.5 up to 2, 1 up to 4, then 2."""
        parts = x.unflatten(-1, [x.shape[-1] // block, block])
        ratio = parts.abs().amax(-1, keepdim=True).div_(6.0 * scale).clamp_(2.0**-9, 448.0)
        unit = self.fp8(ratio).mul_(scale)
        value = parts.div(unit).clamp_(-6.0, 6.0)
        size = value.abs()
        step = torch.where(size < 2.0, 0.5, torch.where(size < 4.0, 1.0, 2.0))
        return value.div_(step).round_().mul_(step).mul_(unit).flatten(-2)
