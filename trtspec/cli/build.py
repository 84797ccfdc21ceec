"""trtspec build, and its later stages one by one: engine, repo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import config_argument, download_option, json_option, load

if TYPE_CHECKING:
    from trtspec.config import Role
    from trtspec.workflows.build import Step


@click.command()
@config_argument
@download_option
@json_option
def build(config_path: Path, overrides: tuple[str, ...], download: bool, as_json: bool) -> None:
    """Check the pair, convert both checkpoints, build both engines and write the Triton repository.

    What is up to date is reused; a killed build goes on where it stopped.
    """
    _walk(config_path, overrides, "repo", None, check=True, download=download, as_json=as_json)


@click.command()
@config_argument
@click.option("--role", type=click.Choice(["draft", "target"]), help="Only this model of the pair.")
@download_option
@json_option
def engine(config_path: Path, overrides: tuple[str, ...], role: Role | None, download: bool, as_json: bool) -> None:
    """Build the engines from the checkpoints, converting first what is not."""
    _walk(config_path, overrides, "engine", role, check=False, download=download, as_json=as_json)


@click.command()
@config_argument
@download_option
@json_option
def repo(config_path: Path, overrides: tuple[str, ...], download: bool, as_json: bool) -> None:
    """Write the Triton model repository, building first what it needs. Skips the checks of `build`."""
    _walk(config_path, overrides, "repo", None, check=False, download=download, as_json=as_json)


def _walk(
    config_path: Path,
    overrides: tuple[str, ...],
    until: Step,
    role: Role | None,
    *,
    check: bool,
    download: bool,
    as_json: bool,
) -> None:
    from trtspec.cli._console import ConsoleReporter, console, print_json, stages_as_dicts
    from trtspec.config import ROLES
    from trtspec.workflows.build import build as run
    from trtspec.workflows.build import stored_verdict

    out = console(as_json)
    with ConsoleReporter(out) as reporter:
        config = load(config_path, overrides)
        done = run(config, reporter, until=until, roles=(role,) if role else ROLES, check=check, download=download)
    if done.did_nothing:
        out.print("Nothing to do: everything is up to date.")
    if until == "repo":
        out.print(f"Repository: {config.repository_dir}", soft_wrap=True)
        if config.engine.backend == "tensorrt":
            script = config.repository_dir / "launch.sh"
            out.print(f"Start it on the GPU host: `trtspec serve`, or {script} (see README.md)", soft_wrap=True)
    if as_json:
        print_json({"stages": stages_as_dicts(done.outcomes), "check": stored_verdict(done) if check else None})
