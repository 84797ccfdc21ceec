"""quantize: the checkpoints of a configuration, or of one bare folder, in TensorRT-LLM's or Hugging Face's layout."""

from __future__ import annotations

import shutil
from pathlib import Path

from trtspec.checkpoint.convert import refuse_nonfinite, stored_warnings
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.quantize import separate
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import BuildError, ConfigError
from trtspec.hashing import HashMemo
from trtspec.store import Outcome, Stage, publish, staleness
from trtspec.workflows.recipe import FILES, WORDS, Recipe, hashes
from trtspec.workflows.reporter import Reporter, Silent

HF_FORMAT = 1
NOT_IN_HF = {"none": "it quantizes nothing", "int4_wo": "int4_rtn is the same with scales for groups"}
"""Formats that a Hugging Face checkpoint is not written in, and why."""


def quantize_pair(
    config: RunConfig,
    reporter: Reporter | None = None,
    *,
    roles: tuple[Role, ...] = ROLES,
    download: bool = False,
    strict: bool = False,
) -> tuple[list[Outcome], list[str]]:
    """The quantized checkpoints of the roles; their outcomes and warnings.

    ConfigError when none of the roles is quantized by the configuration.
    """
    from trtspec.workflows.build import build

    wanted = tuple(role for role in roles if not config.pair[role].quantization.plain)
    if not wanted:
        raise ConfigError(
            "nothing to quantize",
            found=", ".join(f"pair.{role}.quantization is none" for role in roles),
            fix="set pair.target.quantization.weights or kv_cache, and the draft's",
        )
    done = build(config, reporter, until="convert", roles=wanted, check=False, download=download, strict=strict)
    warnings = [f"{role}: {line}" for role in wanted for line in stored_warnings(config.checkpoint_dir(role))]
    return done.outcomes, warnings


def quantize_folder(
    recipe: Recipe, out: Path, reporter: Reporter | None = None, *, strict: bool = False
) -> tuple[list[Outcome], list[str]]:
    """A TensorRT-LLM checkpoint at `out`; the calibration stands beside it and is used again."""
    reporter, memo = reporter or Silent(), HashMemo()
    _check_folder(recipe)
    if recipe.quantization.plain:
        raise ConfigError("nothing to quantize", fix="give --format, --kv-cache or both; `trtspec convert` does none")
    stage, seen, outcomes = recipe.stage(out, memo), recipe.calibration_stage(memo), []
    if staleness(stage, memo):
        recipe.check()
        if seen is not None:
            key = seen.key
            outcomes.append(publish(seen, lambda to: recipe.calibrate(to, reporter, key), memo, notice=reporter.note))
            reporter.finished(outcomes[-1])

    def fill(to: Path) -> None:
        recipe.write(to, strict=strict, progress=lambda done, total: reporter.progress(stage.title, done, total))

    outcomes.append(publish(stage, fill, memo, notice=reporter.note))
    reporter.finished(outcomes[-1])
    memo.save()
    if strict:
        refuse_nonfinite(out)
    return outcomes, list(stored_warnings(out))


def export_folder(recipe: Recipe, out: Path, reporter: Reporter | None = None) -> tuple[list[Outcome], list[str]]:
    """modelopt's unified Hugging Face checkpoint at `out`, for TensorRT-LLM's PyTorch backend."""
    reporter, memo = reporter or Silent(), HashMemo()
    _check_folder(recipe)
    stage = export_stage(recipe, out, memo)
    outcome = publish(stage, lambda to: _export(recipe, to, out, reporter), memo, notice=reporter.note)
    reporter.finished(outcome)
    memo.save()
    return [outcome], []


def export_stage(recipe: Recipe, out: Path, memo: HashMemo) -> Stage:
    """That checkpoint as a stage; ConfigError for a format it cannot have."""
    q = recipe.quantization
    if q.weights in NOT_IN_HF or q.kv_cache == "int8":
        what = "an int8 KV cache" if q.kv_cache == "int8" else q.weights
        raise ConfigError(f"{what} is not written as a Hugging Face checkpoint", fix=NOT_IN_HF.get(q.weights))
    versions = separate.versions(recipe.python)
    calibration = recipe.calibration_stage(memo)
    inputs = {
        "stage": "hf",
        "format": HF_FORMAT,
        "files": hashes(recipe.model, (*FILES, *WORDS), memo),
        "recipe": q.model_dump(mode="json", exclude={"calibration"}),
        "calibration": None if calibration is None else dict(calibration.inputs),
        "versions": {name: versions.get(name) for name in ("nvidia-modelopt", "transformers", "torch")},
    }
    return Stage(f"Hugging Face checkpoint{recipe.title}", out, inputs)


def _check_folder(recipe: Recipe) -> None:
    if not recipe.model.is_dir():
        raise ConfigError("no such model folder", where=recipe.model, fix="give the folder with config.json")


def _export(recipe: Recipe, to: Path, out: Path, reporter: Reporter) -> None:
    facts = ModelFacts.read(recipe.model)
    separate.require(facts, recipe.python)
    q = recipe.quantization
    prompts = recipe.tokens() if q.calibrates else ()
    job = separate.Job(
        recipe.model, q.weights, q.kv_cache, prompts, q.group_size, q.calibration.seed, recipe.dtype, to / "hf"
    )
    log = out.with_name(f"{out.name}.log")
    title = "calibration"
    (to / "seen").mkdir()
    separate.calibrate(
        job, to / "seen", log, python=recipe.python, runner=recipe.runner, note=reporter.note,
        progress=lambda done, total: reporter.progress(title, done, total),
    )  # fmt: skip
    shutil.rmtree(to / "seen")
    for path in (to / "hf").iterdir():
        path.rename(to / path.name)
    (to / "hf").rmdir()
    for name in WORDS:
        if (recipe.model / name).is_file() and not (to / name).exists():
            shutil.copyfile(recipe.model / name, to / name)
    check_export(facts, to)


def check_export(source: ModelFacts, folder: Path) -> None:
    """BuildError when an exported config.json describes another model than its source: rope above all."""
    found = ModelFacts.read(folder)
    for name in ("rope", "rope_local", "vocab_size", "num_hidden_layers", "head_dim", "partial_rotary_factor"):
        was, became = getattr(source, name), getattr(found, name)
        if was != became:
            raise BuildError(
                f"modelopt's config.json changed {name}", where=found.path, found=became, expected=str(was),
                fix="export with transformers 4.57",
            )  # fmt: skip
