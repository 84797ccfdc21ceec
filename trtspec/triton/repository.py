"""Write the model repository of a pair: six model folders that need nothing outside but the two engines."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from trtspec.triton import launch, pbtxt, pipeline
from trtspec.triton.pbtxt import Model
from trtspec.triton.plan import TOKENIZER, RepositoryPlan, plan_for
from trtspec.triton.readme import readme

__all__ = ["POLICY_FILE", "RepositoryPlan", "key_facts", "plan_for", "write_repository"]

FORMAT = 1
"""Raise it when the same plan must give another repository and neither tables nor sources say so."""
POLICY_FILE = f"{pipeline.BLS}/1/policy.json"
SOURCES = Path(__file__).parent / "models"
COMMON = "common"
FUSED = "fused"
_WORDS = (
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
# Files of models/common that each model gets beside its own.
_SHARED = {
    pipeline.PREPROCESSING: ("wire.py", "vocabulary.py", "limits.py"),
    pipeline.POSTPROCESSING: ("wire.py", "vocabulary.py"),
    pipeline.TARGET: ("wire.py",),
    pipeline.DRAFT: ("wire.py",),
    pipeline.BLS: ("wire.py", "vocabulary.py", "limits.py"),
}
# What a fused pipeline asks its engines with, as the model tensorrt_llm does.
_ENGINE_CALLS = ("answers.py", "parsing.py")


def write_repository(out: Path, plan: RepositoryPlan) -> None:
    """Fill the existing empty folder `out`. ModelFileError when the tokenizer cannot be read."""
    for model in pipeline.models(plan):
        version = out / model.name / "1"
        version.mkdir(parents=True)
        (out / model.name / pbtxt.FILE).write_text(pbtxt.render(model), encoding="utf-8")
        for source in _sources(model, plan):
            shutil.copyfile(source, version / source.name)
        if pipeline.needs_tokenizer(model):
            _copy_tokenizer(plan.tokenizer_dir, version / "tokenizer")
    _write_launch(out, plan)
    policy = {"version": 1, "default": {"draft_len": plan.draft_len}, "tasks": {}, "by_concurrency": []}
    (out / POLICY_FILE).write_text(json.dumps(policy, indent=1) + "\n", encoding="utf-8")


def key_facts(plan: RepositoryPlan) -> dict[str, object]:
    """Everything besides the tokenizer's and the engines' content that the repository depends on; JSON values."""
    models = pipeline.models(plan)
    launched = launch_files(plan)
    return {
        "format": FORMAT,
        **({"launch": launched} if launched else {}),
        "models": [asdict(model) for model in models],
        "sources": {
            f"{model.name}/{source.name}": hashlib.sha256(source.read_bytes()).hexdigest()
            for model in models
            for source in _sources(model, plan)
        },
    }


def launch_files(plan: RepositoryPlan) -> dict[str, str]:
    """Name → text of what says how to start the server; nothing for the reference engine: `trtspec serve` runs it."""
    if plan.devices is None or plan.version is None:
        return {}
    said = launch.record(plan.devices, str(plan.version), str(plan.final_dir), plan.ports, plan.memory)
    return {
        launch.RECORD: json.dumps(said, indent=1) + "\n",
        launch.SCRIPT: launch.script(plan.devices, plan.ports),
        launch.README: readme(plan),
    }


def _write_launch(out: Path, plan: RepositoryPlan) -> None:
    for name, text in launch_files(plan).items():
        (out / name).write_text(text, encoding="utf-8")
        if name == launch.SCRIPT:
            (out / name).chmod(0o755)


def _sources(model: Model, plan: RepositoryPlan) -> Iterator[Path]:
    """The Python files of a model; none for an ensemble or a compiled backend."""
    if model.backend != "python":
        return
    # Draft and target are the same program on two engines.
    folder = pipeline.TARGET if model.name == pipeline.DRAFT else model.name
    yield from sorted((SOURCES / folder).glob("*.py"))
    for name in _SHARED[model.name]:
        yield SOURCES / COMMON / name
    if plan.fused and model.name == pipeline.BLS:
        yield from sorted((SOURCES / FUSED).glob("*.py"))
        for name in _ENGINE_CALLS:
            yield SOURCES / pipeline.TARGET / name


def _copy_tokenizer(source: Path, out: Path) -> None:
    out.mkdir()
    for name in _WORDS:
        if (source / name).is_file():
            shutil.copyfile(source / name, out / name)
