"""Optimizers: AdamW for layers that were trained already, Muon for matrices that start from nothing."""

# The project's mypy does not look into torch.
# mypy: allow-subclassing-any, allow-untyped-decorators, no-warn-return-any
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trtspec.distil.budget import rate_factor

MATRIX_RATE = 0.025
"""Muon's learning rate: a step turns a matrix by about this share of its norm."""
VECTOR_RATE = 3e-3
"""AdamW's learning rate for what Muon leaves: embeddings, head, norms, biases."""
MOMENTUM = 0.95
QUINTIC = (3.4445, -4.7750, 2.0315)
"""A quintic iteration that pulls all singular values towards 1 (Jordan et al. 2024, Muon)."""
CLIP = 1.0
"""Largest norm of all gradients together."""


def orthogonal(gradient: Tensor, steps: int = 5) -> Tensor:
    """The gradient [rows, columns] with its singular values made about equal, in bfloat16 for speed."""
    tall = gradient.shape[0] > gradient.shape[1]
    x = (gradient.T if tall else gradient).contiguous().to(torch.bfloat16)
    x = x / (x.norm() + 1e-7)
    a, b, c = QUINTIC
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * (square @ square)) @ x
    return (x.T if tall else x).to(gradient.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonal updates, for matrices only."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, *_: object) -> None:
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(gradient))
                momentum.lerp_(gradient, 1 - MOMENTUM)
                ahead = gradient.lerp(momentum, MOMENTUM)
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.add_(orthogonal(ahead), alpha=-group["lr"] * scale)


@dataclass
class Optimizers:
    """All optimizers of one model, each with its full learning rate."""

    model: nn.Module
    each: list[tuple[torch.optim.Optimizer, float]]

    def step(self, progress: float) -> float:
        """Clip, update with the rate for `progress` in [0, 1], clear the gradients. Returns their norm before."""
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), CLIP))
        factor = rate_factor(progress)
        for optimizer, rate in self.each:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad()
        return norm


def muon(model: nn.Module, matrix_rate: float = MATRIX_RATE, vector_rate: float = VECTOR_RATE) -> Optimizers:
    """Muon for the matrices inside the layers, AdamW for the rest. Small matrices learn in far fewer tokens so."""
    hidden = [p for name, p in model.named_parameters() if p.dim() == 2 and "layers." in name]
    taken = {id(p) for p in hidden}
    others = [p for p in model.parameters() if id(p) not in taken]
    return Optimizers(model, [(Muon(hidden, matrix_rate), matrix_rate), (_adam(others, vector_rate), vector_rate)])


def adamw(model: nn.Module, rate: float) -> Optimizers:
    """AdamW for everything, without weight decay: a draft is to agree, not to generalise."""
    return Optimizers(model, [(_adam(list(model.parameters()), rate), rate)])


def _adam(parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
