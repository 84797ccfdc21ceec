"""Optimizers, the learning-rate schedule and resumable progress."""

# The project's mypy does not look into torch.
# mypy: allow-subclassing-any, allow-untyped-decorators
from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import AdamW

from .model import Llama

MATRIX_RATE = 0.025
VECTOR_RATE = 3e-3
MOMENTUM = 0.95
# A quintic iteration that pulls all singular values towards 1 (Jordan et al. 2024, Muon).
QUINTIC = (3.4445, -4.7750, 2.0315)
WARMUP = 0.02
SAVE_EVERY_SECONDS = 90.0


@dataclass
class Budget:
    """Ends after so many minutes of training or so many steps, whichever is given."""

    minutes: float
    steps: int
    step: int = 0
    spent: float = 0.0  # seconds, over all resumed runs
    _tick: float = field(default_factory=time.monotonic)

    def advance(self) -> None:
        now = time.monotonic()
        self.spent += now - self._tick
        self._tick = now
        self.step += 1

    def start(self) -> None:
        self._tick = time.monotonic()

    def progress(self) -> float:
        return min(1.0, self.step / self.steps if self.steps else self.spent / self.minutes / 60)


def rate_factor(progress: float) -> float:
    """Linear warm-up, then a cosine to zero."""
    if progress < WARMUP:
        return (progress + 1e-3) / WARMUP
    return 0.5 * (1.0 + math.cos(math.pi * (progress - WARMUP) / (1.0 - WARMUP)))


def orthogonal(gradient: Tensor, steps: int = 5) -> Tensor:
    """The gradient with its singular values made about equal, in bfloat16 for speed."""
    tall = gradient.shape[0] > gradient.shape[1]
    x = (gradient.T if tall else gradient).contiguous().to(torch.bfloat16)
    x = x / (x.norm() + 1e-7)
    a, b, c = QUINTIC
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * (square @ square)) @ x
    return (x.T if tall else x).to(gradient.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonal updates, in plain matmuls that are fast on a CPU."""

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, *_: object) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                gradient = parameter.grad
                momentum = state.setdefault("momentum", torch.zeros_like(gradient))
                momentum.lerp_(gradient, 1 - MOMENTUM)
                ahead = gradient.lerp(momentum, MOMENTUM)
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.add_(orthogonal(ahead), alpha=-group["lr"] * scale)


class Trainer:
    """A model with its optimizers; one checkpoint file holds all that a resume needs."""

    def __init__(self, model: Llama, budget: Budget, path: Path) -> None:
        self.model, self.budget, self.path = model, budget, path
        hidden = [p for n, p in model.named_parameters() if p.dim() == 2 and ".layers." in n]
        taken = {id(p) for p in hidden}
        others = [p for p in model.parameters() if id(p) not in taken]
        # Muon learns these small matrices in clearly fewer tokens than AdamW does.
        muon = Muon(hidden, lr=MATRIX_RATE)
        adam = AdamW(others, lr=VECTOR_RATE, betas=(0.9, 0.95), weight_decay=0.0)
        self.optimizers: list[tuple[torch.optim.Optimizer, float]] = [(muon, MATRIX_RATE), (adam, VECTOR_RATE)]
        self.saved_at = time.monotonic()
        if path.exists():
            self._load()

    def update(self) -> None:
        """One optimizer step on the gradients that are there."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        factor = rate_factor(self.budget.progress())
        for optimizer, rate in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad()
        self.budget.advance()
        if time.monotonic() - self.saved_at > SAVE_EVERY_SECONDS:
            self.save()

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self.optimizers],
            "step": self.budget.step,
            "spent": self.budget.spent,
        }
        beside = self.path.with_name(self.path.name + ".part")
        torch.save(state, beside)
        beside.replace(self.path)
        self.saved_at = time.monotonic()

    def _load(self) -> None:
        state = torch.load(self.path)
        self.model.load_state_dict(state["model"])
        for (optimizer, _), saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.budget.step, self.budget.spent = state["step"], state["spent"]
        print(f"resumed {self.path.name} at step {self.budget.step}", flush=True)
