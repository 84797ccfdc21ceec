"""trtspec lint: what would hang or go wrong silently, from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import json_option, load
from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.config import Role
    from trtspec.workflows.lint import Linted

FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("config_path", metavar="[CONFIG]", required=False, type=FOLDER)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of CONFIG.")
@click.option("--repository", type=FOLDER, help="A model repository, instead of CONFIG's.")
@click.option("--target-engine", type=FOLDER, help="The target's engine, where it is not where the repository says.")
@click.option("--draft-engine", type=FOLDER, help="The draft's engine, likewise.")
@click.option("--acceptance", type=click.Choice(["tokens", "logits"]), help="For two engines alone; tokens by default.")
@json_option
def lint(
    config_path: Path | None,
    overrides: tuple[str, ...],
    repository: Path | None,
    target_engine: Path | None,
    draft_engine: Path | None,
    acceptance: str | None,
    as_json: bool,
) -> int:
    """Check two engines against each other, against the repository and its defaults, before a server is started.

    Name them by a configuration, by a repository folder, or by both engine folders. Nothing is run and no GPU is
    needed: most of these faults show as a hang, a silent fallback or a wrong answer. docs/lint.md lists the rules.

    Exit 0 when no error was found (warnings may have been), 1 otherwise.
    """
    from trtspec.cli._console import print_json

    engines: dict[Role, Path] = {}
    if target_engine is not None:
        engines["target"] = target_engine
    if draft_engine is not None:
        engines["draft"] = draft_engine
    found = _linted(config_path, overrides, repository, engines, acceptance == "logits")
    _print(found, as_json)
    if as_json:
        print_json(found.as_dict())
    return 0 if found.sound else 1


def _linted(
    config_path: Path | None,
    overrides: tuple[str, ...],
    repository: Path | None,
    engines: dict[Role, Path],
    logits: bool,
) -> Linted:
    from trtspec.workflows.lint import lint_config, lint_folders

    if config_path is not None:
        if repository is not None:
            raise ConfigError("CONFIG names the repository already", fix="give CONFIG or --repository")
        return lint_config(load(config_path, overrides), engines)
    if overrides:
        raise ConfigError("--set overrides keys of CONFIG", fix="give CONFIG")
    if repository is None and len(engines) < 2:
        raise ConfigError("nothing to look at", expected="CONFIG, --repository, or --target-engine and --draft-engine")
    missing = [folder for folder in engines.values() if not folder.is_dir()]
    if missing:
        raise ConfigError("no such engine folder", where=missing[0])
    return lint_folders(repository, engines, logits)


def _print(found: Linted, as_json: bool) -> None:
    from trtspec.cli._console import console

    out = console(as_json)
    for problem in found.problems:
        style = "red" if problem.severity == "error" else "yellow"
        out.print(f"[{style}]{problem.severity}[/{style}] ", end="")
        fix = f" Fix: {problem.fix}." if problem.fix else ""
        out.print(f"{problem.code}  {problem}.{fix}", markup=False, soft_wrap=True)
    errors = sum(problem.severity == "error" for problem in found.problems)
    looked = found.repository or " and ".join(str(folder) for folder in found.engines.values())
    out.print(f"{errors} errors, {len(found.problems) - errors} warnings: {looked}", markup=False, soft_wrap=True)
