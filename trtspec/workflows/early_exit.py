"""draft early-exit: cut a draft out of its target, publish it, and say what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.checkpoint.early_exit import EarlyExit, plan_early_exit, write_early_exit
from trtspec.errors import ConfigError, MissingError
from trtspec.hashing import HashMemo
from trtspec.store import Outcome, Stage, publish, write_atomic
from trtspec.workflows.card import CARD, card
from trtspec.workflows.reporter import Reporter, Silent

if TYPE_CHECKING:
    from trtspec.measurement.reading import TokenPrompt
    from trtspec.workflows.drafted import Measured

UNTRAINED = "An untrained early exit is usually poor: its later layers are what made the target's choices."


@dataclass(frozen=True)
class Cut:
    """A published early exit. `measured` is None where the machine could not measure; `why_not` then says why."""

    plan: EarlyExit
    outcome: Outcome
    measured: Measured | None
    why_not: str = ""


def early_exit(
    target: Path,
    out: Path,
    keep: Sequence[int],
    prompts: Sequence[Path] = (),
    *,
    k: int = 4,
    limit: int | None = None,
    reporter: Reporter | None = None,
) -> Cut:
    """The whole story. The draft stays even where measuring it fails for want of torch, and says so.

    ConfigError: layers or prompts that are none, or a folder that is not ours to replace. ModelFileError: the target.
    """
    reporter = reporter or Silent()
    plan = plan_early_exit(target, keep)
    asked = _asked(target, prompts)[:limit]
    stage = draft_stage("early exit", target, out, {"keep": list(keep)})

    def fill(partial: Path) -> None:
        write_early_exit(plan, partial, lambda done, total: reporter.progress(stage.title, done, total))
        write_atomic(partial / CARD, _card(plan, None, "not finished"))

    outcome = publish(stage, fill, HashMemo(), notice=reporter.note)
    reporter.finished(outcome)
    source = ", ".join(path.name for path in prompts) or "built in, general"
    measured, why_not = _measured(target, out, asked, source, k, reporter)
    write_atomic(out / CARD, _card(plan, measured, why_not))
    return Cut(plan, outcome, measured, why_not)


def draft_stage(title: str, target: Path, out: Path, recipe: dict[str, object]) -> Stage:
    """The draft folder as a stage. Its card may change: it holds what was measured afterwards."""
    if out.resolve() == target.resolve():
        raise ConfigError("the draft would replace its target", where=out, fix="choose another folder")
    weights = {p.name: [p.stat().st_size, p.stat().st_mtime_ns] for p in sorted(target.glob("*.safetensors"))}
    memo = HashMemo()
    words = {p.name: memo.sha256(p) for p in sorted(target.glob("*.json")) if p.is_file()}
    inputs = {"stage": title, "format": 1, "target": {"weights": weights, "words": words}, "recipe": recipe}
    return Stage(title, out, inputs, frozenset({CARD}))


def _asked(target: Path, prompts: Sequence[Path]) -> list[TokenPrompt]:
    """Read before anything is written. None for a folder without words, unless prompts were given."""
    from trtspec.measurement.promptfiles import token_prompts

    return token_prompts(target, prompts) if prompts or (target / "tokenizer.json").is_file() else []


def _measured(
    target: Path, draft: Path, asked: Sequence[TokenPrompt], source: str, k: int, reporter: Reporter
) -> tuple[Measured | None, str]:
    from trtspec.workflows.drafted import measure_draft

    if not asked:
        return None, "the target's folder has no tokenizer.json"
    try:
        found = measure_draft(
            target,
            draft,
            asked,
            source,
            k=k,
            progress=lambda done, total: reporter.progress("acceptance in prompts", done, total),
        )
    except MissingError as error:
        return None, error.what
    return found, ""


def _card(plan: EarlyExit, measured: Measured | None, why_not: str) -> str:
    total, kept = plan.facts.num_hidden_layers, len(plan.keep)
    made = [
        f"layers {', '.join(map(str, plan.keep))} of the target's {total}, embedding, final norm and head, unchanged",
        "not trained: " + UNTRAINED,
    ]
    return card(plan.source, f"{plan.source.name}, {kept} of {total} layers", made, measured, why_not)
