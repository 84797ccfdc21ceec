"""trtspec quantize: the quantized checkpoints of a configuration, or of one bare folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtspec.checkpoint.formats import FORMATS, KV_ALGOS
from trtspec.cli._options import download_option, json_option, load, refuse_mixture
from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.config import Role
    from trtspec.store import Outcome
    from trtspec.workflows.recipe import Recipe

_FORMATS = [name for name in FORMATS if name != "none"]


@click.command()
@click.argument("config_path", metavar="[CONFIG]", required=False, type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of CONFIG. Repeatable.")
@click.option("--role", type=click.Choice(["draft", "target"]), help="Only this model of the pair.")
@download_option
@click.option("--model", type=click.Path(path_type=Path), help="Instead of CONFIG: a Hugging Face folder.")
@click.option("--out", type=click.Path(path_type=Path), help="With --model: where the checkpoint goes.")
@click.option("--format", type=click.Choice(_FORMATS), help="With --model: the weights' format.")
@click.option("--kv-cache", type=click.Choice(list(KV_ALGOS)), help="With --model: the KV cache's format; auto.")
@click.option("--group-size", type=int, help="With --model: weights that share a scale, INT4 only; 128.")
@click.option("--method", type=click.Choice(["modelopt", "layerwise"]), help="With --model: who calibrates; modelopt.")
@click.option("--prompts", type=click.Path(path_type=Path), help="With --model: JSONL file to calibrate with.")
@click.option("--samples", type=click.IntRange(min=1), help="With --model: prompts used; 128.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="With --model: longest prompt in tokens; 512.")
@click.option("--dtype", type=click.Choice(["auto", "float16", "bfloat16", "float32"]), help="With --model; auto.")
@click.option(
    "--tensor-parallel", "tensor", type=click.IntRange(min=1), help="With --model: GPUs that share layers; 1."
)
@click.option("--pipeline-parallel", "pipeline", type=click.IntRange(min=1), help="With --model: groups of layers; 1.")
@click.option(
    "--modelopt-python", "python", type=click.Path(path_type=Path), help="With --model: Python with modelopt."
)
@click.option("--hf", is_flag=True, default=None, help="With --model: write a unified Hugging Face checkpoint instead.")
@click.option("--strict", is_flag=True, help="NaN or infinite weights are an error.")
@json_option
def quantize(
    config_path: Path | None,
    overrides: tuple[str, ...],
    role: Role | None,
    download: bool,
    strict: bool,
    as_json: bool,
    **bare: Any,
) -> None:
    """Quantize the models of a CONFIG's pair, or one --model folder, calibrating first where a format needs it.

    What a calibration saw is kept beside the checkpoint and used again. docs/quantization.md compares the formats.
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
        print_json({"stages": stages_as_dicts(outcomes), "warnings": warnings})


def _pair(
    config_path: Path, overrides: tuple[str, ...], role: Role | None, download: bool, strict: bool, reporter: Any
) -> tuple[list[Outcome], list[str]]:
    from trtspec.config import ROLES
    from trtspec.workflows.quantize import quantize_pair

    config = load(config_path, overrides)
    return quantize_pair(config, reporter, roles=(role,) if role else ROLES, download=download, strict=strict)


def _folder(bare: dict[str, Any], strict: bool, reporter: Any) -> tuple[list[Outcome], list[str]]:
    from trtspec.workflows.quantize import export_folder, quantize_folder

    if bare["model"] is None or bare["out"] is None:
        raise ConfigError("nothing to quantize", expected="a CONFIG, or --model FOLDER --out FOLDER --format FORMAT")
    recipe = _recipe(bare)
    if bare["hf"]:
        return export_folder(recipe, bare["out"], reporter)
    return quantize_folder(recipe, bare["out"], reporter, strict=strict)


def _recipe(bare: dict[str, Any]) -> Recipe:
    """The flags as the configuration would say them."""
    from pydantic import ValidationError

    from trtspec.config.quantization import Quantization
    from trtspec.workflows.recipe import Recipe

    calibration = {name: bare[name] for name in ("prompts", "samples", "max_tokens") if bare[name] is not None}
    flags = {"weights": bare["format"], **{name: bare[name] for name in ("kv_cache", "group_size", "method")}}
    try:
        quantization = Quantization.model_validate(
            {name: value for name, value in flags.items() if value is not None} | {"calibration": calibration}
        )
    except ValidationError as error:
        fault = error.errors()[0]
        option = f"--{str(fault['loc'][-1]).replace('_', '-')}: " if fault["loc"] else ""
        raise ConfigError(option + fault["msg"].removeprefix("Value error, ")) from None
    out: Path = bare["out"]
    return Recipe(
        model=bare["model"],
        quantization=quantization,
        calibration=out.with_name(f"{out.name}.calibration"),
        dtype=bare["dtype"] or "auto",
        tensor=bare["tensor"] or 1,
        pipeline=bare["pipeline"] or 1,
        python=bare["python"],
    )
