"""trtspec validate: serve, measure, judge, report."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from trtspec.cli._options import config_argument, json_option, load
from trtspec.errors import ConfigError


@click.command()
@config_argument
@click.option("--baseline", type=click.Path(path_type=Path), help="A result that this one must not fall behind.")
@click.option("--sign", "tool", type=click.Choice(["cosign", "model_signing"]), help="Sign the release with it.")
@click.option("--key", type=click.Path(path_type=Path), help="Private key of --sign; without: your Sigstore identity.")
@json_option
def validate(
    config_path: Path,
    overrides: tuple[str, ...],
    baseline: Path | None,
    tool: Literal["cosign", "model_signing"] | None,
    key: Path | None,
    as_json: bool,
) -> int:
    """Measure acceptance, exactness and throughput of the built pair through Triton, and judge the release.

    Writes the reports and the release record, and after a pass the serving policy. --baseline is a result.json, a
    report.json or a folder with one.

    Exit 0 pass, 1 a gate says no, 6 the evidence is invalid or cannot decide.
    """
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.cli._files import require_writable_folder
    from trtspec.release.report import result_at
    from trtspec.release.signing import Signer
    from trtspec.release.terminal import print_report
    from trtspec.workflows.validate import validate as run

    if key is not None and tool is None:
        raise ConfigError("--key is of no use without --sign")
    out = console(as_json)
    config, before = load(config_path, overrides), None if baseline is None else result_at(baseline)
    require_writable_folder(config.report_dir)
    with ConsoleReporter(out) as reporter:
        validation = run(config, reporter, Signer(tool, key) if tool else None, before)
    print_report(out, validation.result, validation.judgement)
    out.print(f"Report: {validation.report.with_suffix('.html')} (and .md, .json, junit.xml beside it)", soft_wrap=True)
    if as_json:
        print_json(validation.as_dict())
    return validation.exit_code
