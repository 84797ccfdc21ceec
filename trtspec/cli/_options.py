"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.config import RunConfig

F = TypeVar("F", bound=Callable[..., Any])


def config_argument(function: F) -> F:
    """CONFIG and the overrides of its keys."""
    function = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a key, such as speculation.draft_len=4. Repeatable; wins over environment and file.",
    )(function)
    return click.argument("config_path", metavar="CONFIG", type=click.Path(path_type=Path))(function)


def json_option(function: F) -> F:
    """--json: one machine-readable document on stdout; text for people goes to stderr."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")(function)


def download_option(function: F) -> F:
    """--download: the only way anything is fetched."""
    return click.option("--download", is_flag=True, help="Fetch hub models at their pinned revisions.")(function)


def refuse_mixture(config_path: Path | None, pair: Sequence[Any], folder: Mapping[str, Any]) -> None:
    """A verb takes a CONFIG with the options of a `pair`, or the options of one bare `folder`: ConfigError for both."""
    if config_path is None:
        if any(pair):
            raise ConfigError("--set, --role and --download belong to a configuration", fix="give a CONFIG")
        return
    given = {name for name, value in folder.items() if value is not None}
    option = next((p.opts[0] for p in click.get_current_context().command.params if p.name in given), None)
    if option is not None:
        raise ConfigError(f"{option} belongs to --model, not to a configuration", fix="set it in CONFIG")


def load(config_path: Path, overrides: tuple[str, ...]) -> RunConfig:
    """The resolved configuration."""
    from trtspec.config import load_config

    return load_config(config_path, overrides)
