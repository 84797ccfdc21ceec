"""A pair named on the command line instead of, or on top of, a configuration file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.config import RunConfig

F = TypeVar("F", bound=Callable[..., Any])
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
TENSOR = "pair.target.parallelism.tensor"
MODEL = "a folder in Hugging Face layout, or a hub id"


def optional_config(function: F) -> F:
    """[CONFIG] and the overrides of its keys."""
    from trtspec.cli._options import config_argument

    function = config_argument(function)
    parameters = function.__click_params__  # type: ignore[attr-defined]
    argument = next(p for p in parameters if isinstance(p, click.Argument))
    argument.required, argument.metavar = False, "[CONFIG]"
    return function


def pair_options(function: F) -> F:
    """--target, --draft, --acceptance, --gpu and --count; each wins over the configuration file."""
    for option in (
        click.option("--count", type=int, help="GPUs of that kind in the machine."),
        click.option("--gpu", help="GPU kind to plan for, such as h100-80gb."),
        click.option("--acceptance", type=click.Choice(["tokens", "logits"]), help="How draft tokens are accepted."),
        click.option("--draft", metavar="DIR", help=f"The draft: {MODEL}."),
        click.option("--target", metavar="DIR", help=f"The target: {MODEL}."),
    ):
        function = option(function)
    return function


def pair_config(
    config_path: Path | None,
    overrides: tuple[str, ...],
    *,
    target: str | None = None,
    draft: str | None = None,
    acceptance: str | None = None,
    gpu: str | None = None,
    count: int | None = None,
) -> RunConfig:
    """The configuration of the file with the flags on top, or of the flags alone. `--set` wins over both.

    ConfigError when there is neither a file nor a whole pair, or a given folder does not exist.
    """
    from trtspec.config import config_of, load_config

    flags = {"speculation.acceptance": acceptance, "hardware.gpu": gpu, "hardware.count": count}
    given = [f"{key}={json.dumps(value)}" for key, value in flags.items() if value is not None]
    models = {"target": target, "draft": draft}
    if config_path is not None:
        given += [line for role, model in models.items() if model is not None for line in _replaced(role, model)]
        return load_config(config_path, (*given, *overrides))
    document: dict[str, Any] = {"name": "pair", "pair": {role: _source(role, model) for role, model in models.items()}}
    if gpu is not None and gpu != "cpu":
        document["engine"] = {"backend": "tensorrt"}
    return config_of(document, (*given, *overrides))


def cuts(config_path: Path | None, overrides: tuple[str, ...]) -> bool:
    """Whether the target's tensor-parallel size is ours to choose: there is no file, and nobody gave it."""
    return config_path is None and not any(text.startswith(TENSOR) for text in overrides)


def _replaced(role: str, model: str) -> list[str]:
    """Overrides that put `model` in the place of the file's, whichever way that is named."""
    keys = {"path": None, "hub": None, "revision": None} | _source(role, model)
    return [f"pair.{role}.{key}={json.dumps(value)}" for key, value in keys.items()]


def _source(role: str, model: str | None) -> dict[str, str]:
    if model is None:
        raise ConfigError(
            f"no {role}: name a configuration file, or both models with --target and --draft",
            fix="for example `trtspec check configs/tiny.yaml`, or `trtspec check --target DIR --draft DIR`",
        )
    folder = Path(model).expanduser()
    if folder.is_dir():
        return {"path": str(folder.resolve())}
    if HUB_ID.fullmatch(model) and not folder.exists():
        return {"hub": model}
    raise ConfigError(f"no such folder for the {role}", where=f"--{role}", found=model, expected=MODEL)
