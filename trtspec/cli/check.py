"""trtspec check: will this pair work, and will it pay?"""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import download_option, json_option
from trtspec.cli._pair import cuts, optional_config, pair_config, pair_options


@click.command()
@optional_config
@pair_options
@click.option("--strict", is_flag=True, help="A warning fails too.")
@click.option("-v", "--verbose", is_flag=True, help="Every finding on a line of its own, good ones too.")
@download_option
@json_option
def check(
    config_path: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    draft: str | None,
    acceptance: str | None,
    gpu: str | None,
    count: int | None,
    strict: bool,
    verbose: bool,
    download: bool,
    as_json: bool,
) -> int:
    """Compare the two models of a pair from their files alone: no GPU, no engine, seconds.

    Name the pair by a configuration file, or by --target and --draft: folders with as few files as a tokenizer and
    config.json, or hub ids. A well-known hub id needs no files at all: its published facts are used.
    What a missing file hides is listed as not measured.

    Exit 0 for pass and warn, 1 for fail (and for warn with --strict).
    """
    from trtspec.cli._console import console, print_json
    from trtspec.pairing.report import print_verdict
    from trtspec.workflows.check import check_config

    config = pair_config(
        config_path, overrides, target=target, draft=draft, acceptance=acceptance, gpu=gpu, count=count
    )
    verdict = check_config(config, download=download, cut=cuts(config_path, overrides))
    print_verdict(console(as_json), verdict, verbose=verbose)
    if as_json:
        print_json(verdict.as_dict())
    return 1 if verdict.verdict == "fail" or (strict and verdict.verdict == "warn") else 0
