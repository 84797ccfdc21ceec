"""Numbered products with fixed weights: what a step multiplies by, packed, with biases. TorchScript compiles it."""

import torch
from torch import Tensor, nn

from trtspec.backends.reference.linear import Linear


def padded_rows(rows: int, least: int) -> int:
    """Rows that a product of so many rows is padded to.

    The library makes kernels for each number of rows and keeps them, 2 to 3 MB for a small model. A server meets
    every number from one to a few hundred, so larger ones are rounded up a little: the kernels stay few.
    """
    if rows <= 16:
        return max(rows, least)
    step = 4 if rows <= 64 else 16 if rows <= 256 else 64
    return (rows + step - 1) // step * step


class Products(nn.Module):  # type: ignore[misc]
    """Products in the order they were added."""

    weights: list[Tensor]
    biases: list[Tensor | None]

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.linear = linear
        self.weights, self.biases = [], []

    def add(self, weight: Tensor, bias: Tensor | None) -> None:
        """The next product: `weight` [out, in] in the type it is to be computed in."""
        self.weights.append(self.linear.pack(weight))
        self.biases.append(bias)

    def add_nothing(self) -> None:
        """A number without a product."""
        self.weights.append(torch.empty(0))
        self.biases.append(None)

    def forward(self, x: Tensor, j: int) -> Tensor:
        """x · weights[j] + biases[j]: [rows, in] -> [rows, out]."""
        return self.linear(x, self.weights[j], self.biases[j])

    def gated(self, x: Tensor, j: int) -> Tensor:
        """act(product j) · product j + 1."""
        return self.linear.gated(x, self.weights[j], self.biases[j], x, self.weights[j + 1], self.biases[j + 1])
