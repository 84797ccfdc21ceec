"""trtspec config and trtspec schema: the configuration as it is understood, and what it may hold."""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import config_argument, json_option, load


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
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema of the configuration file (always JSON)."""
    del as_json  # accepted on every verb; this one prints nothing else
    from trtspec.cli._console import print_json
    from trtspec.config import RunConfig

    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema"} | RunConfig.model_json_schema())
