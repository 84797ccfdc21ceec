"""trtspec convert: the checkpoints of a configuration, or of one bare folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtspec.cli._options import download_option, json_option, load, refuse_mixture
from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.config import Role
    from trtspec.store import Outcome


@click.command()
@click.argument("config_path", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of CONFIG. Repeatable.")
@click.option("--role", type=click.Choice(["draft", "target"]), help="Only this model of the pair.")
@download_option
@click.option("--model", type=click.Path(path_type=Path), help="Instead of CONFIG: a Hugging Face folder.")
@click.option("--out", type=click.Path(path_type=Path), help="With --model: where the checkpoint goes.")
@click.option("--dtype", type=click.Choice(["auto", "float16", "bfloat16", "float32"]), help="With --model; auto.")
@click.option(
    "--tensor-parallel", "tensor", type=click.IntRange(min=1), help="With --model: GPUs that share layers; 1."
)
@click.option("--pipeline-parallel", "pipeline", type=click.IntRange(min=1), help="With --model: groups of layers; 1.")
@click.option(
    "--tensorrt-llm", "version", metavar="VERSION", help="With --model: refuse what this version cannot load."
)
@click.option("--strict", is_flag=True, help="NaN or infinite weights are an error.")
@json_option
def convert(
    config_path: Path | None,
    overrides: tuple[str, ...],
    role: Role | None,
    download: bool,
    strict: bool,
    as_json: bool,
    **bare: Any,
) -> None:
    """Convert Hugging Face weights to TensorRT-LLM checkpoints: of a CONFIG's pair, or of one --model folder.

    Weights are streamed: memory does not grow with the model. A killed run leaves nothing that looks finished.
    """
    from trtspec.cli._console import (
        ConsoleReporter,
        console,
        print_json,
        stages_as_dicts,
        tell_if_reused,
        tell_warnings,
    )

    out = console(as_json)
    refuse_mixture(config_path, (overrides, role, download), bare)
    with ConsoleReporter(out) as reporter:
        if config_path is not None:
            outcomes, warnings = _pair(config_path, overrides, role, download, strict, reporter)
        else:
            outcomes, warnings = _folder(bare, strict, reporter)
    tell_warnings(out, warnings if config_path is None else ())  # the stages of a pair have said theirs
    tell_if_reused(out, outcomes)
    if as_json:
        print_json({"stages": stages_as_dicts(outcomes), "warnings": warnings, "check": None})


def _pair(
    config_path: Path, overrides: tuple[str, ...], role: Role | None, download: bool, strict: bool, reporter: Any
) -> tuple[list[Outcome], list[str]]:
    from trtspec.checkpoint.convert import stored_warnings
    from trtspec.config import ROLES
    from trtspec.workflows.build import build

    roles = (role,) if role else ROLES
    config = load(config_path, overrides)
    done = build(config, reporter, until="convert", roles=roles, check=False, download=download, strict=strict)
    warnings = [f"{r}: {line}" for r in roles for line in stored_warnings(config.checkpoint_dir(r))]
    return done.outcomes, warnings


def _folder(bare: dict[str, Any], strict: bool, reporter: Any) -> tuple[list[Outcome], list[str]]:
    from trtspec.workflows.convert import Conversion, convert_folder

    if bare["model"] is None or bare["out"] is None:
        raise ConfigError("nothing to convert", expected="a CONFIG, or --model FOLDER --out FOLDER")
    conversion = Conversion(
        bare["model"],
        bare["out"],
        bare["dtype"] or "auto",
        bare["tensor"] or 1,
        bare["pipeline"] or 1,
        bare["version"],
        strict,
    )
    outcome, warnings = convert_folder(conversion, reporter)
    return [outcome], list(warnings)
