"""trtspec migrate: a tensorrt configuration as a pytorch one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import json_option

if TYPE_CHECKING:
    from trtspec.workflows.migrate import Change


@click.command()
@click.argument("config_path", metavar="CONFIG", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the new configuration here; default: stdout.")
@json_option
def migrate(config_path: Path, out: Path | None, as_json: bool) -> None:
    """Turn a `backend: tensorrt` CONFIG into one for the LLM API (`backend: pytorch`), and list what changes.

    TensorRT-LLM 1.3.0rc21 and newer have no engines; 1.0 and newer have this path. What has no counterpart is refused.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.cli._files import write_new
    from trtspec.workflows.migrate import migrate as run

    found = run(config_path, out)
    if out is not None:
        write_new(out, found.text())
    elif not as_json:
        click.echo(found.text(), nl=False)
    people = console(as_json=as_json or out is None)
    for kind, title in (("changed", "Changed"), ("lost", "Lost")):
        people.print(f"{title}:", style="bold")
        for change in found.changes:
            if change.kind == kind:
                people.print(f"  {_line(change)}", markup=False, soft_wrap=True)
    if out is not None:
        people.print(f"Written: {out}", markup=False, soft_wrap=True)
    if as_json:
        print_json(found.as_dict() | {"written": out})


def _line(change: Change) -> str:
    values = "" if change.before is None and change.after is None else f" {change.before}"
    values += "" if change.after is None else f" → {change.after}"
    return f"{change.key}:{values} ({change.why})" if values else f"{change.key}: {change.why}"
