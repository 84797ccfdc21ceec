"""From prompts to what training needs: which prompts are held out, and the target's texts on both sides."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trtspec.distil.generate import Asked, Writing, write_texts
from trtspec.distil.recipe import Recipe
from trtspec.distil.texts import Text
from trtspec.errors import ConfigError
from trtspec.measurement.reading import TokenPrompt
from trtspec.store import content_key

FEWEST = 8
"""Prompts without which nothing can be held out."""
SHARE, MOST = 0.2, 120
"""Share of the prompts that is held out, and how many at most."""


@dataclass(frozen=True)
class Sides:
    """Prompts to learn from, and prompts to judge on: no prompt is on both sides."""

    training: tuple[TokenPrompt, ...]
    judging: tuple[TokenPrompt, ...]


def split(prompts: Sequence[TokenPrompt], seed: int, judging: Sequence[TokenPrompt] = ()) -> Sides:
    """A seeded draw, or `judging` where they are given; equal prompts count as one. ConfigError for too few."""
    each = {prompt.ids: prompt for prompt in reversed(prompts)}
    if judging:
        judges = {prompt.ids: prompt for prompt in judging}
        return Sides(tuple(p for ids, p in each.items() if ids not in judges), tuple(judges.values()))
    order = sorted(each)
    if len(order) < FEWEST:
        raise ConfigError(
            "too few prompts to learn from some and judge on others",
            found=len(order),
            expected=f"at least {FEWEST} different ones",
        )
    random.Random(seed).shuffle(order)  # noqa: S311 (not for secrets)
    held = min(MOST, max(FEWEST // 2, int(SHARE * len(order))))
    return Sides(tuple(each[ids] for ids in order[held:]), tuple(each[ids] for ids in order[:held]))


@dataclass(frozen=True)
class Texts:
    """The target's texts on both sides."""

    training: list[Text]
    judging: list[Text]


def texts_of(
    target: Any,
    sides: Sides,
    end_ids: Sequence[int],
    recipe: Recipe,
    work: Path,
    progress: Callable[[str, int, int], None],
) -> Texts:
    """Have the target write them, or take what an earlier run with the same settings left in `work`.

    Training texts number `recipe.tokens` answer tokens, or what 64 answers to each prompt give.
    """
    how = Writing(
        temperature=recipe.temperature,
        end_ids=frozenset(end_ids),
        keep=recipe.top,
        soften=recipe.soften,
        seed=recipe.seed,
        bfloat16=recipe.precision == "bfloat16",
    )
    # The judge needs the deployment's own probabilities where it samples, whatever the loss is softened with.
    judge = replace(how, soften=recipe.temperature or 1.0, keep=(recipe.top or 64) if recipe.temperature else 0)
    jobs = (("texts", sides.training, how, recipe.tokens), ("held-out texts", sides.judging, judge, 0))
    found = []
    for title, prompts, writing, tokens in jobs:
        asked = [Asked(prompt.ids, prompt.max_tokens) for prompt in prompts]
        # Folders are named by what they depend on: changed settings begin another one.
        key = content_key(how=vars(writing) | {"end_ids": sorted(writing.end_ids)}, asked=[vars(a) for a in asked])
        folder = work / f"{title.replace(' ', '-')}-{key[:12]}"
        found.append(write_texts(target, asked, tokens, folder, writing, _titled(progress, title)))
    return Texts(*found)


def _titled(progress: Callable[[str, int, int], None], title: str) -> Callable[[int, int], None]:
    def titled(done: int, total: int) -> None:
        progress(f"{title} in tokens", done, total)

    return titled
