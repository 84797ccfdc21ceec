"""trtspec export: the pair in the words of other servers."""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import config_argument, json_option, load


@click.group()
def export() -> None:
    """Write the pair's configuration for another server."""


@export.command()
@config_argument
@click.option("--vllm", default=None, metavar="VERSION", help="vLLM version to write for; 0.25.0.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the command as a script here; default: stdout.")
@json_option
def vllm(config_path: Path, overrides: tuple[str, ...], vllm: str | None, out: Path | None, as_json: bool) -> None:
    """vLLM's --speculative-config and the whole serve command. Nothing is started."""
    from trtspec.cli._console import console, print_json
    from trtspec.cli._files import write_new
    from trtspec.workflows.export_vllm import DEFAULT, export_vllm

    found = export_vllm(load(config_path, overrides), vllm or DEFAULT)
    if out is not None:
        write_new(out, found.text())
        console(as_json).print(f"Written: {out}", markup=False, soft_wrap=True)
    elif not as_json:
        click.echo(found.text(), nl=False)
    if as_json:
        print_json(found.as_dict() | {"written": out})
