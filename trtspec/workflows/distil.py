"""draft distill: the target writes texts → a draft learns from them → the best one is published and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.checkpoint.early_exit import copy_words
from trtspec.checkpoint.facts import ModelFacts
from trtspec.distil.recipe import Recipe
from trtspec.distil.student import build_student, load_target, require, save_student
from trtspec.errors import ConfigError
from trtspec.hashing import HashMemo
from trtspec.measurement.promptfiles import token_prompts
from trtspec.store import Stage, publish, write_atomic
from trtspec.workflows.card import CARD, card
from trtspec.workflows.drafted import Measured, end_ids, measure_draft
from trtspec.workflows.early_exit import draft_stage
from trtspec.workflows.reporter import Reporter, Silent

if TYPE_CHECKING:
    from trtspec.distil.prepare import Sides, Texts
    from trtspec.distil.train import Evaluation, Fit


@dataclass(frozen=True)
class Distilled:
    """A published draft: α while it learned, why training ended, and what it is worth."""

    recipe: Recipe
    history: tuple[Evaluation, ...]
    ended: str
    texts: int
    tokens: int
    measured: Measured


def distil(
    target: Path,
    out: Path,
    prompts: Sequence[Path],
    recipe: Recipe,
    *,
    work: Path | None = None,
    resume: bool = False,
    max_tokens: int | None = None,
    held_out: Sequence[Path] = (),
    reporter: Reporter | None = None,
) -> Distilled:
    """The whole story. `work` (beside `out` unless given) keeps the target's texts and the state to resume from.

    The draft is judged on the prompts of `held_out`, or on a share of `prompts` that it then never learns from.
    MissingError without torch, transformers or the GPU. ConfigError: prompts, sizes, or a state that would be lost.
    """
    recipe = recipe.resolved()
    require(recipe.device)
    files = {"prompts": tuple(prompts), "held out": tuple(held_out)}
    work = work or out.with_name(f"{out.name}.work")
    return _Distillation(target, out, recipe, files, work, max_tokens, reporter or Silent()).run(resume)


@dataclass
class _Distillation:
    """One walk from prompts to a measured draft."""

    target: Path
    out: Path
    recipe: Recipe
    files: Mapping[str, tuple[Path, ...]]
    work: Path
    max_tokens: int | None
    reporter: Reporter

    def run(self, resume: bool) -> Distilled:
        from trtspec.distil.session import check_resume
        from trtspec.distil.texts import tokens_of

        stage = self._stage()
        check_resume(state := self.work / f"state-{stage.key[:12]}", resume)
        sides = self._sides()
        fit, texts = self._train(sides, state)
        tokens = tokens_of(texts.training)
        made = _made(self.recipe, fit, len(texts.training), tokens, len(sides.judging))
        self._publish(stage, fit, made)
        measured = self._measure(sides)
        write_atomic(self.out / CARD, card(self.target, self.out.name, made, measured))
        return Distilled(self.recipe, tuple(fit.history), fit.ended, len(texts.training), tokens, measured)

    def _stage(self) -> Stage:
        memo = HashMemo()
        settings: dict[str, object] = {"recipe": self.recipe.identity(), "max_tokens": self.max_tokens}
        settings |= {name: [memo.sha256(_there(path)) for path in paths] for name, paths in self.files.items()}
        return draft_stage("distilled draft", self.target, self.out, settings)

    def _sides(self) -> Sides:
        from trtspec.distil.prepare import split

        learn, judge = (
            token_prompts(self.target, paths, max_tokens=self.max_tokens) if paths else []
            for paths in self.files.values()
        )
        return split(learn, self.recipe.seed, judge)

    def _train(self, sides: Sides, state: Path) -> tuple[Fit, Texts]:
        from trtspec.distil.prepare import texts_of
        from trtspec.distil.session import train
        from trtspec.distil.texts import tokens_of

        say, ends = self.reporter, end_ids(self.target)
        model = load_target(self.target, self.recipe.device)
        student = build_student(self.target, self.recipe)
        texts = texts_of(model, sides, ends, self.recipe, self.work, say.progress)
        counts = f"{len(texts.training)} with {tokens_of(texts.training)} answer tokens, {len(texts.judging)} held out"
        say.note(f"Texts: {counts}")
        fit = train(
            student,
            model,
            texts,
            self.recipe,
            state,
            ends,
            said=lambda found: say.note(_evaluated(found)),
            progress=lambda share: say.progress("training in %", round(100 * share), 100),
        )
        return fit, texts

    def _publish(self, stage: Stage, fit: Fit, made: Sequence[str]) -> None:
        def fill(partial: Path) -> None:
            save_student(fit.trainer.model, partial, ModelFacts.read(self.target).dtype or "float32")
            copy_words(self.target, partial)
            write_atomic(partial / CARD, card(self.target, self.out.name, made, None, "not finished"))

        # The weights follow from the budget as well, which is no part of the state's identity.
        spent = {"step": fit.history[-1].step, "tokens": self.recipe.tokens, "ended": fit.ended}
        full = replace(stage, inputs={**stage.inputs, "budget": spent})
        self.reporter.finished(publish(full, fill, HashMemo(), notice=self.reporter.note))

    def _measure(self, sides: Sides) -> Measured:
        return measure_draft(
            self.target,
            self.out,
            sides.judging,
            "held out from training",
            k=self.recipe.draft_len,
            temperature=self.recipe.temperature,
            device=self.recipe.device,
            progress=lambda done, total: self.reporter.progress("acceptance in prompts", done, total),
        )


def _there(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError("no such prompts file", where=path)
    return path


def _evaluated(found: Evaluation) -> str:
    loss = "" if found.loss is None else f", loss {found.loss:.3f}"
    return f"step {found.step}: α {found.alpha:.3f} on held-out prompts{loss}, {found.minutes:.1f} minutes"


def _made(recipe: Recipe, fit: Fit, texts: int, tokens: int, held: int) -> list[str]:
    """What the card says of how the draft came to be."""
    if recipe.scratch is None:
        start = f"layers {', '.join(map(str, recipe.keep_layers))} of the target"
    else:
        s = recipe.scratch
        start = f"nothing: {s.layers} layers × {s.hidden}, FFN {s.intermediate}, {s.heads}/{s.kv_heads} heads"
    how = "greedy" if recipe.temperature == 0 else f"sampled at temperature {recipe.temperature:g}"
    last, best = fit.history[-1], max(fit.history, key=lambda e: e.alpha)
    against = f"its {recipe.top} likeliest tokens of each position" if recipe.top else "all its logits"
    return [
        f"started from {start}",
        f"trained on {texts} texts of the target's own ({tokens} answer tokens, {how}); {held} prompts were held out",
        f"forward KL to {against} at temperature {recipe.soften:g}, "
        f"plus {recipe.first_choice:g} × cross-entropy to its first choice",
        f"{recipe.optimizer}, rate {recipe.rate:g}, {recipe.batch} texts a step, seed {recipe.seed}, "
        f"{recipe.precision} products",
        f"{last.step} steps, {last.minutes:.1f} minutes, ended by {fit.ended}; step {best.step} was the best and kept",
    ]
