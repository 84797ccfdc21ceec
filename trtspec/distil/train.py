"""The training loop: steps until the budget is spent, states on the way, evaluation, early stop."""

# The project's mypy does not look into torch.
# mypy: allow-untyped-decorators
from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trtspec.distil import state
from trtspec.distil.budget import Budget
from trtspec.distil.optim import Optimizers
from trtspec.errors import BuildError

SAVE_EVERY_SECONDS = 90.0
LEAST_GAIN = 1e-3
"""What an evaluation must gain to count as better: less is noise and would keep a finished run going."""
BEST = "best.safetensors"


class Trainer:
    """A model, its optimizers and its budget; `folder` holds the state that a resume continues from."""

    def __init__(self, model: nn.Module, optimizers: Optimizers, budget: Budget, folder: Path) -> None:
        self.model, self.optimizers, self.budget, self.folder = model, optimizers, budget, folder
        self.facts: dict[str, Any] = {}
        """What else a resume must know; JSON values."""
        self._saved_at = time.monotonic()

    def resume(self) -> bool:
        """Go on from the newest state; False where there is none."""
        found = state.newest(self.folder)
        if found is None:
            return False
        self.facts = state.load(found, self.model, self.optimizers)
        self.budget.step, self.budget.spent = int(self.facts["step"]), float(self.facts["spent"])
        return True

    def update(self, loss: Tensor) -> float:
        """One step on `loss` (a scalar); saves from time to time. BuildError when the loss is not finite."""
        value = float(loss.detach())
        if value != value or abs(value) == float("inf"):
            raise BuildError(
                "the loss is no longer a number",
                where=self.folder,
                found=f"{value} at step {self.budget.step}",
                fix="resume from the last state with a lower learning rate",
            )
        loss.backward()
        self.optimizers.step(self.budget.progress())
        self.budget.advance()
        if time.monotonic() - self._saved_at > SAVE_EVERY_SECONDS:
            self.save()
        return value

    def save(self) -> None:
        """Write the state; the one before it is removed when it is there."""
        facts = {**self.facts, "spent": self.budget.spent}
        state.save(self.folder, self.budget.step, self.model, self.optimizers, facts)
        self._saved_at = time.monotonic()


@dataclass(frozen=True)
class Evaluation:
    """α on the held-out prompts after `step` steps, with the mean training loss since the last evaluation."""

    step: int
    alpha: float
    loss: float | None
    """None before the first step."""
    minutes: float


@dataclass
class Fit:
    """Trains until the budget ends or `patience` evaluations in a row were no better; keeps the best weights."""

    trainer: Trainer
    loss: Callable[[int], Tensor]
    """Scalar loss of the batch of a step: the same step gives the same batch, so a resumed run repeats nothing."""
    evaluate: Callable[[], float]
    eval_every: int
    patience: int
    """0: never stop early."""
    said: Callable[[Evaluation], None] = lambda _: None
    progress: Callable[[float], None] = lambda _: None
    history: list[Evaluation] = field(default_factory=list)
    ended: str = ""
    """`budget` or `patience`, once it has."""

    def run(self) -> None:
        """Train to the end; the model then holds its best weights."""
        self._recall()
        budget, losses = self.trainer.budget, list(self.trainer.facts.get("losses", []))
        if not self.history:
            self._evaluated(losses)
        budget.start()
        self.ended = "patience" if self._worn_out() else ""
        while not self.ended and budget.progress() < 1.0:
            losses.append(self.trainer.update(self.loss(budget.step)))
            self.trainer.facts["losses"] = losses
            self.progress(budget.progress())
            if budget.step % self.eval_every == 0 or budget.progress() >= 1.0:
                self._evaluated(losses)
                self.ended = "patience" if self._worn_out() else ""
                budget.start()
        self._restore_best()
        self.ended = self.ended or "budget"

    def _evaluated(self, losses: list[float]) -> None:
        budget = self.trainer.budget
        mean = sum(losses) / len(losses) if losses else None
        found = Evaluation(budget.step, self.evaluate(), mean, budget.spent / 60)
        if found.alpha >= max((e.alpha for e in self.history), default=-1.0):
            self._keep_best()
        self.history.append(found)
        losses.clear()
        self.trainer.facts |= {"losses": [], "history": [vars(e) for e in self.history]}
        self.trainer.save()
        self.said(found)

    def _worn_out(self) -> bool:
        """Whether the last `patience` evaluations brought nothing over the best before them."""
        if not self.patience or len(self.history) <= self.patience:
            return False
        before = max(e.alpha for e in self.history[: -self.patience])
        return all(e.alpha < before + LEAST_GAIN for e in self.history[-self.patience :])

    def _recall(self) -> None:
        self.history = [Evaluation(**_known(entry)) for entry in self.trainer.facts.get("history", [])]

    def _keep_best(self) -> None:
        from safetensors.torch import save_file

        self.trainer.folder.mkdir(parents=True, exist_ok=True)
        beside = self.trainer.folder / f".{BEST}.part"
        save_file({name: p.detach().contiguous() for name, p in self.trainer.model.named_parameters()}, beside)
        beside.replace(self.trainer.folder / BEST)

    @torch.no_grad()
    def _restore_best(self) -> None:
        found = state.read_tensors(self.trainer.folder / BEST)
        for name, parameter in self.trainer.model.named_parameters():
            parameter.copy_(found[name])


def _known(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("step", "alpha", "loss", "minutes")}
