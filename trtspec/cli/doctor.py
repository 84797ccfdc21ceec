"""trtspec doctor: what can this machine do?"""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import json_option, load


@click.command()
@click.argument("config_path", metavar="[CONFIG]", type=click.Path(path_type=Path), required=False)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of CONFIG. Repeatable.")
@click.option("--deep", is_flag=True, help="Also compare trtllm-build's own arguments with ours: tens of seconds.")
@json_option
def doctor(config_path: Path | None, overrides: tuple[str, ...], deep: bool, as_json: bool) -> int:
    """Show what this machine has, which backend is open on it, and what the others lack.

    Finds TensorRT-LLM, TensorRT, the driver, GPUs, container image, Triton and free disk, without importing them.
    With CONFIG also whether its backend, version and hardware fit this machine.

    Exit 0 when the backend of CONFIG, or without CONFIG one with TensorRT-LLM, can be built on here (serving may still
    lack something: it is listed); 3 when not.
    """
    from trtspec.cli._console import console, print_json
    from trtspec.cli._doctor import render
    from trtspec.environment import detect
    from trtspec.errors import ConfigError
    from trtspec.workflows.doctor import diagnose

    if overrides and config_path is None:
        raise ConfigError("--set overrides a configuration, and none is given", fix="name CONFIG too")
    config = None if config_path is None else load(config_path, overrides)
    found = diagnose(detect(folder=None if config is None else config.output.engines, deep=deep), config)
    console(as_json).print(render(found))
    if as_json:
        print_json(found.as_dict())
    return found.exit_code
