"""One training run put together: student, optimizer, objective, evaluation and budget, resumable from `folder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trtspec.distil import optim, state
from trtspec.distil.budget import Budget
from trtspec.distil.evaluate import acceptance
from trtspec.distil.objective import Objective
from trtspec.distil.prepare import Texts
from trtspec.distil.recipe import Recipe
from trtspec.distil.texts import Batches
from trtspec.distil.train import Evaluation, Fit, Trainer
from trtspec.errors import ConfigError


def check_resume(folder: Path, resume: bool) -> None:
    """ConfigError where a state is there and is not to be continued, or is to be and is not there."""
    there = state.newest(folder) is not None
    if there and not resume:
        raise ConfigError(
            "an earlier run with these settings left its state here",
            where=folder,
            fix="go on with --resume, or remove the folder to begin again",
        )
    if resume and not there:
        raise ConfigError(
            "there is no state to resume from",
            where=folder,
            fix="run without --resume; target, prompts and settings must be those of the run that is continued",
        )


def train(
    student: Any,
    target: Any,
    texts: Texts,
    recipe: Recipe,
    folder: Path,
    end_ids: Sequence[int],
    *,
    said: Callable[[Evaluation], None],
    progress: Callable[[float], None],
) -> Fit:
    """Train `student` in place: it ends with the weights that were best on the held-out texts."""
    optimizers = (
        optim.muon(student, vector_rate=recipe.rate)
        if recipe.optimizer == "muon"
        else optim.adamw(student, recipe.rate)
    )
    trainer = Trainer(student, optimizers, Budget(recipe.minutes, recipe.steps), folder)
    trainer.resume()
    objective = Objective(student, target, Batches(texts.training, recipe.batch, recipe.seed), recipe)

    def evaluate() -> float:
        counted = acceptance(
            student,
            texts.judging,
            recipe.draft_len,
            end_ids,
            temperature=recipe.temperature,
            bfloat16=recipe.precision == "bfloat16",
            seed=recipe.seed,
        )
        return sum(counted[1:], counted[0]).alpha() or 0.0

    student.train()
    fit = Fit(trainer, objective.loss, evaluate, recipe.eval_every, recipe.patience, said=said, progress=progress)
    fit.run()
    return fit
