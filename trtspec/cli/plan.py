"""trtspec plan: everything build would do, touching nothing."""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import config_argument, json_option, load


@click.command()
@config_argument
@json_option
def plan(config_path: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Show what `build` would do: stages, folders, bytes, memory per GPU, speed-up and cost.

    Writes nothing and needs no weights: config.json is enough, or the published facts of a well-known hub id.

    Exit 0; 1 where `check` says that the pair does not fit, since `build` would stop there.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.pairing.plan_report import print_plan
    from trtspec.workflows.plan import plan_config

    found = plan_config(load(config_path, overrides))
    document = found.as_dict()
    print_plan(console(as_json), document)
    if as_json:
        print_json(document)
    return 1 if found.verdict.verdict == "fail" else 0
