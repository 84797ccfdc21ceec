"""A model repository as it stands on disk, and every rule on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.config import ROLES, Role
from trtspec.errors import ModelFileError, ServingError
from trtspec.triton import launch, llmapilint, pbtxt, pipeline
from trtspec.triton.lint import defaults, files, memory, models, placement
from trtspec.triton.lint.engine import Engine, read_engine
from trtspec.triton.lint.engines import lint_engines
from trtspec.triton.lint.problem import Problem
from trtspec.triton.lint.seen import FOLDERS, Seen

MODELS = (
    pipeline.PREPROCESSING,
    pipeline.TARGET,
    pipeline.DRAFT,
    pipeline.POSTPROCESSING,
    pipeline.BLS,
    pipeline.ENSEMBLE,
)
RULES: tuple[Callable[[Seen], Iterator[Problem]], ...] = (
    models.check_llms, models.check_pair, models.check_ensemble, defaults.check_defaults, defaults.check_policy,
    placement.check_placement, memory.check_memory, memory.check_windows, defaults.check_tokenizer,
)  # fmt: skip
"""Rules on a repository whose configs can all be read: one line adds one."""


@dataclass(frozen=True)
class Found:
    """What reading an engine gave."""

    engine: Engine | None
    problem: Problem | None


def lint(repository: Path, engines: Mapping[Role, Path] | None = None) -> tuple[Problem, ...]:
    """Everything wrong with a repository; empty when it is sound. ServingError when there is none.

    `engines`: where the engines are on this machine, if not where the repository says.
    """
    if not repository.is_dir():
        raise ServingError("no model repository", where=repository, fix="run `trtspec build` first")
    if llmapilint.is_llmapi(repository):
        return tuple(Problem(*found, "llmapi.model") for found in llmapilint.problems(repository))
    configs: dict[str, Any] = {}
    problems = []
    expected = _expected(repository)
    for name in expected:
        try:
            configs[name] = pbtxt.read(repository / name / pbtxt.FILE)
        except ModelFileError as error:
            problems.append(Problem(name, str(error), "repository.config"))
    for name, config in configs.items():
        problems += files.folder_problems(repository / name, config)
    found = {role: _engine(role, configs, engines) for role in ROLES}
    problems += [each.problem for each in found.values() if each.problem is not None]
    read = {role: each.engine for role, each in found.items() if each.engine is not None}
    if len(configs) == len(expected):
        seen = Seen(repository, configs, read, _launch(repository))
        problems += [problem for rule in RULES for problem in rule(seen)]
        if len(read) == len(ROLES):
            problems += lint_engines(read["target"], read["draft"], "logits" if seen.logits else "tokens")
    return tuple(problems)


def _expected(repository: Path) -> tuple[str, ...]:
    """The models that must be there: a fused pipeline needs no draft model."""
    return tuple(name for name in MODELS if name != pipeline.DRAFT) if _fused(repository) else MODELS


def _fused(repository: Path) -> bool:
    try:
        return pbtxt.parameters(pbtxt.read(repository / pipeline.BLS / pbtxt.FILE)).get("pipeline") == "fused"
    except ModelFileError:
        return False


def _engine(role: Role, configs: Mapping[str, Any], given: Mapping[Role, Path] | None) -> Found:
    name, key = FOLDERS[role], "gpt_model_path"
    if name not in configs and pipeline.BLS in configs:
        name, key = pipeline.BLS, f"{role}_engine_path"  # of a fused pipeline
    if name not in configs or key not in pbtxt.parameters(configs[name]):
        return Found(None, None)
    path = (given or {}).get(role) or Path(pbtxt.parameters(configs[name]).get(key, ""))
    try:
        return Found(read_engine(path), None)
    except ModelFileError:
        text = f"{key} has no readable engine: {path / 'config.json'}"
        return Found(None, Problem(name, text, "repository.engine", fix="run `trtspec engine`"))


def _launch(repository: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((repository / launch.RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
