"""trtspec report: write the reports of a result again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import json_option
from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.release.report import Report

FILE = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("result", metavar="RESULT", type=FILE)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder; default: where RESULT lies.")
@click.option("--gates", "gates_path", type=FILE, help="Judge anew, by the rules in this YAML file.")
@click.option("--baseline", type=FILE, help="Judge anew, against this result too.")
@click.option("--details", metavar="ADDRESS", default="report.html", help="Where report.md says the page is.")
@json_option
def report(
    result: Path, out: Path | None, gates_path: Path | None, baseline: Path | None, details: str, as_json: bool
) -> int:
    """Write report.html, report.md, junit.xml and both JSON documents from what was measured.

    RESULT is a report.json or a folder with one, shown as it was judged then; or a bare result.json, judged by the
    default gates. Nothing is measured, and no record is written: that belongs to `validate`.

    Exit 0 written, whatever the verdict; 6 it is no result.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.cli._files import require_writable_folder
    from trtspec.release.record import RECORD
    from trtspec.release.report import FILES, write_report
    from trtspec.release.terminal import print_report

    folder = out or (result if result.is_dir() else result.parent)
    if out is None and (folder / RECORD).exists():
        raise ConfigError("the reports here belong to a release record", where=folder, fix="give another folder: --out")
    require_writable_folder(folder)
    found = _judged(result, gates_path, baseline)
    path = write_report(folder, found.result, found.judgement, found.gates, details=details)
    terminal = console(as_json)
    print_report(terminal, found.result, found.judgement)
    terminal.print(f"Written: {', '.join(FILES)} in {path.parent}", markup=False, soft_wrap=True)
    if as_json:
        print_json({"verdict": found.judgement.verdict, "files": [path.parent / name for name in FILES]})
    return 0


def _judged(path: Path, gates_path: Path | None, baseline: Path | None) -> Report:
    """The report at `path` as it is, or judged anew where that was asked for or never done."""
    from trtspec.config import load_gates
    from trtspec.config.gates import Gates
    from trtspec.release.gates import judge
    from trtspec.release.report import Report, load_any, result_at

    found = load_any(path)
    if isinstance(found, Report) and gates_path is None and baseline is None:
        return found
    measured, gates = (found.result, found.gates) if isinstance(found, Report) else (found, Gates())
    gates = gates if gates_path is None else load_gates(gates_path)
    judgement = judge(measured, gates, None if baseline is None else result_at(baseline))
    return Report(result=measured, gates=gates, judgement=judgement)
