"""trtspec check: will this pair work, and will it pay?"""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import config_argument, download_option, json_option, load


@click.command()
@config_argument
@click.option("--strict", is_flag=True, help="A warning fails too.")
@download_option
@json_option
def check(config_path: Path, overrides: tuple[str, ...], strict: bool, download: bool, as_json: bool) -> int:
    """Compare the two models of the pair from their files alone: no GPU, no engine, seconds.

    Exit 0 for pass and warn, 1 for fail (and for warn with --strict).
    """
    from trtspec.cli._console import console, print_json
    from trtspec.pairing.report import print_verdict
    from trtspec.workflows.check import check_config

    verdict = check_config(load(config_path, overrides), download=download)
    print_verdict(console(as_json), verdict)
    if as_json:
        print_json(verdict.as_dict())
    return 1 if verdict.verdict == "fail" or (strict and verdict.verdict == "warn") else 0
