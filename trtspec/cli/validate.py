"""trtspec validate: serve, measure, judge, report."""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import config_argument, json_option, load


@click.command()
@config_argument
@json_option
def validate(config_path: Path, overrides: tuple[str, ...], as_json: bool) -> int:
    """Measure acceptance, exactness and throughput of the built pair through Triton, and judge the release.

    Exit 0 pass, 1 a gate says no, 6 the evidence is invalid or cannot decide.
    """
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.release.report import print_report
    from trtspec.workflows.validate import validate as run

    out = console(as_json)
    with ConsoleReporter(out) as reporter:
        validation = run(load(config_path, overrides), reporter)
    print_report(out, validation.result, validation.judgement)
    out.print(f"Report: {validation.report.with_suffix('.md')} (and .json)", soft_wrap=True)
    if as_json:
        print_json(validation.as_dict())
    return validation.exit_code
