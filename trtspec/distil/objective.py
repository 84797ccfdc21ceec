"""The loss of one step: a batch of the target's texts, seen by the draft, against what the target said there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trtspec.distil.loss import divergence, divergence_of_top, first_choice
from trtspec.distil.model import autocast, logits_at, padded
from trtspec.distil.recipe import Recipe
from trtspec.distil.texts import Batches, Text


@dataclass(frozen=True)
class Objective:
    """`loss(step)`: mean over the answer tokens of the step's texts. `target` is asked only where nothing was kept."""

    student: Any
    target: Any
    batches: Batches
    recipe: Recipe

    def loss(self, step: int) -> Tensor:
        """KL to the target plus the weighted cross-entropy to its first choice, a scalar with its graph."""
        r, batch = self.recipe, self.batches.batch(step)
        ids, counted = padded(batch, r.device)
        with autocast(r.device, r.precision == "bfloat16"):
            given = logits_at(self.student, ids, counted)
        each, best = self._against_top(given, batch) if r.top else self._against_target(given, ids, counted)
        if r.first_choice:
            each = each + r.first_choice * first_choice(given, best)
        return each.mean()

    def _against_top(self, given: Tensor, batch: Sequence[Text]) -> tuple[Tensor, Tensor]:
        ids = _joined([text.top_ids for text in batch], given).long()
        wanted = _joined([text.top_logprobs for text in batch], given)
        return divergence_of_top(given, ids, wanted, self.recipe.soften), ids[:, 0]

    def _against_target(self, given: Tensor, ids: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), autocast(self.recipe.device, self.recipe.precision == "bfloat16"):
            wanted = logits_at(self.target, ids, counted)
        return divergence(given, wanted, self.recipe.soften), wanted.argmax(-1)


def _joined(parts: Sequence[Any], like: Tensor) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(like.device)
