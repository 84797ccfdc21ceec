"""lint: two engines against each other, against the repository, and both against the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import ConfigError, ModelFileError, ServingError
from trtspec.triton.lint import Engine, Problem, lint, lint_engines, read_engine

LIMITS = ("max_batch_size", "max_seq_len", "max_draft_len")


@dataclass(frozen=True)
class Linted:
    """What was looked at, and what is wrong."""

    repository: Path | None
    engines: Mapping[Role, Path]
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        """No errors."""
        return all(problem.severity != "error" for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "sound": self.sound,
            "repository": self.repository,
            "engines": dict(self.engines),
            "problems": [problem.as_dict() for problem in self.problems],
        }


def lint_config(config: RunConfig, engines: Mapping[Role, Path] | None = None) -> Linted:
    """The configuration's engines and repository, as far as they are there; ConfigError where neither is."""
    folders = {role: (engines or {}).get(role) or config.engine_dir(role) for role in ROLES}
    native = config.engine.backend == "pytorch"
    built = {} if native else {role: folder for role, folder in folders.items() if folder.is_dir()}
    repository = config.repository_dir if config.repository_dir.is_dir() else None
    if repository is None and len(built) < len(ROLES):
        raise ConfigError(
            "there is neither a repository nor a pair of engines yet", where=config.repository_dir,
            fix="run `trtspec engine` or `trtspec build` first",
        )  # fmt: skip
    found = lint_folders(repository, built, config.speculation.acceptance == "logits")
    more = [problem for role, folder in built.items() for problem in _limits(config, role, folder)]
    return Linted(repository, built, (*found.problems, *more))


def lint_folders(repository: Path | None, engines: Mapping[Role, Path], logits: bool = False) -> Linted:
    """A repository, or two engines alone; ConfigError where something named is not there."""
    if repository is not None:
        try:
            return Linted(repository, engines, lint(repository, engines))
        except ServingError as error:
            raise ConfigError(error.what, where=error.where, fix="name the folder that holds the models") from None
    read: dict[Role, Engine] = {}
    problems = []
    for role in ROLES[::-1]:
        try:
            read[role] = read_engine(engines[role])
        except ModelFileError as error:
            problems.append(Problem(role, str(error), "engine.unreadable", fix="run `trtspec engine`"))
    if len(read) == len(ROLES):
        problems += lint_engines(read["target"], read["draft"], "logits" if logits else "tokens")
    return Linted(None, engines, tuple(problems))


def _limits(config: RunConfig, role: Role, folder: Path) -> Iterator[Problem]:
    """A configuration that was changed after the engines were built."""
    try:
        engine = read_engine(folder)
    except ModelFileError:
        return  # said already
    asked = {
        "max_batch_size": config.engine.max_batch_size,
        "max_seq_len": config.engine.max_seq_len,
        "max_draft_len": config.speculation.max_draft_len if role == "target" else 0,
    }
    have = {name: engine.number(name) for name in LIMITS} | {"max_seq_len": engine.length}
    wrong = [f"{name} {have[name]} (asked for {asked[name]})" for name in LIMITS if have[name] != asked[name]]
    if wrong:
        yield Problem(
            role, f"the engine was built with {', '.join(wrong)}", "config.limits", "warning", "run `trtspec build`"
        )
