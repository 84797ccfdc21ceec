"""trtspec config and trtspec schema: the configuration as it is understood, and what it may hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import config_argument, json_option, load

if TYPE_CHECKING:
    from pydantic import BaseModel


@click.command()
@config_argument
@json_option
def config(config_path: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print the resolved configuration: every key with its value, paths absolute."""
    import yaml

    from trtspec.cli._console import print_json

    document = load(config_path, overrides).model_dump(mode="json")
    if as_json:
        print_json(document)
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


@click.command()
@click.option(
    "--of",
    "document",
    type=click.Choice(["config", "result", "report", "profile"]),
    default="config",
    show_default=True,
    help="Which document: the configuration file, what `measure`, `validate` or `profile` writes.",
)
@json_option
def schema(document: str, as_json: bool) -> None:
    """Print the JSON Schema of the configuration file, or of a document that trtspec writes (always JSON)."""
    del as_json  # accepted on every verb; this one prints nothing else
    from trtspec.cli._console import print_json

    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema"} | _model(document).model_json_schema())


def _model(document: str) -> type[BaseModel]:
    if document == "result":
        from trtspec.measurement.result import ResultDocument

        return ResultDocument
    if document == "report":
        from trtspec.release.report import Report

        return Report
    if document == "profile":
        from trtspec.measurement.profile_result import ProfileDocument

        return ProfileDocument
    from trtspec.config import RunConfig

    return RunConfig
