"""trtspec compare: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import json_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trtspec.measurement.result import Estimate
    from trtspec.release.compare import Comparison, FigureRow


@click.command()
@click.argument("a", type=click.Path(path_type=Path, exists=True))
@click.argument("b", type=click.Path(path_type=Path, exists=True))
@json_option
def compare(a: Path, b: Path, as_json: bool) -> int:
    """Two runs side by side: each figure with its interval, and the difference of B from A with its own.

    A and B are a result.json, a report.json, or a folder with one. What else differs between the runs is listed
    first. This only describes: `trtspec gate --baseline` judges.

    Exit 0 both were read, whatever they say; 6 one is no result.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.release.compare import compare as run
    from trtspec.release.report import result_at

    found = run(result_at(a), result_at(b))
    out = console(as_json)
    out.print(_render(found))
    if as_json:
        print_json(found.model_dump(mode="json"))
    return 0


def _render(found: Comparison) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from trtspec.release.words import visible

    lines = [Text(visible(f"{name}: {r.pair}, {r.created}")) for name, r in (("A", found.a), ("B", found.b))]
    lines += [Text(visible(f"differs: {line}"), "yellow") for line in found.warnings]
    if not found.warnings:
        lines.append(Text("Conditions, versions and prompts are the same."))
    lines.append(Text(f"Asked in both runs: {found.same_prompts} prompts"))
    parts: list[RenderableType] = [*lines]
    for domain in dict.fromkeys(row.domain for row in found.rows):
        rows = [row for row in found.rows if row.domain == domain and (row.a or row.b)]
        if not any(row.a and row.b for row in rows):
            continue  # measured in one run only: said above
        parts += [Text(), Text(visible(domain), "bold"), _table(rows)]
    return Group(*parts)


def _table(rows: list[FigureRow]) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in ("figure", "A", "B", "B less A", "B is"):
        table.add_column(heading, justify="left" if heading in ("figure", "B is") else "right", overflow="fold")
    for row in rows:
        # An interval goes below its estimate, so that the table fits a narrow terminal.
        table.add_row(
            Text(row.figure),
            *(Text(_number(each, row.unit).replace(" [", "\n[")) for each in (row.a, row.b)),
            Text(_number(row.difference, row.unit, signed=True).replace(" [", "\n[")),
            Text(row.told if row.how != "same prompts" else f"{row.told}\n(same prompts)"),
        )
    return table


def _number(found: Estimate | None, unit: str, *, signed: bool = False) -> str:
    if found is None:
        return "–"
    digits = {"s": 4, "1/s": 1}.get(unit, 3)
    sign = "+" if signed else ""
    point = f"{found.point:{sign}.{digits}f}"
    if found.low is None or found.high is None:
        return point
    return f"{point} [{found.low:{sign}.{digits}f}, {found.high:{sign}.{digits}f}]"
