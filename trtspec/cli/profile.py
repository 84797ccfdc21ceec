"""trtspec profile: the acceptance of a pair, before any engine exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtspec.cli._options import download_option, json_option
from trtspec.cli._pair import optional_config, pair_config, pair_options

if TYPE_CHECKING:
    from trtspec.config import RunConfig


@click.command()
@optional_config
@pair_options
@click.option("--dataset", "datasets", multiple=True, metavar="FILE:DOMAIN", help="Prompts (JSONL), instead of the "
              "configuration's. Repeatable.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), help="Prompts of each domain, drawn with the seed.")
@click.option("--max-tokens", type=click.IntRange(1), help="Longest answer, also where a prompt asks for more.")
@click.option("--temperature", type=float, help="0 is greedy; wins over validation.temperature.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where the models run.")
@click.option("--engine", type=click.Choice(["reference", "transformers"]), help="What runs them. Default: the "
              "reference engine on a CPU, transformers on a GPU.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), help="Type to compute in.")
@click.option("--checkpoints", is_flag=True, help="Measure the built checkpoints (quantized, say), not their sources.")
@click.option("--tokenizer", type=click.Path(path_type=Path), help="Folder of the tokenizer of models without one.")
@click.option("--no-tails", is_flag=True, help="Faster: tokens drafted behind a rejection are not followed, and "
              "accepted ÷ drafted is a lower bound.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Do not go on with what an interrupted run left.")
@download_option
@json_option
def profile(
    config_path: Path | None,
    overrides: tuple[str, ...],
    datasets: tuple[str, ...],
    temperature: float | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Measure acceptance on domain prompts, in this process: no engine, no server, no built files.

    The target answers every prompt, the draft is asked at every place of the answers, and the rounds of every draft
    length up to speculation.max_draft_len are replayed exactly. Writes reports/<name>/profile.json, which `select`,
    `plan` and `check` read; another draft than the configuration's (--draft) goes to reports/<name>/profiles/.
    A run that was interrupted goes on where it stopped.

    Exit 0; 1 when token ids clash; 6 when nothing could be measured.
    """
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.measurement.profile_report import print_profile
    from trtspec.measurement.profile_result import rule_of
    from trtspec.workflows.profile import ProfileOptions
    from trtspec.workflows.profile import profile as run

    pair = {name: given.pop(name) for name in ("target", "draft", "acceptance", "gpu", "count")}
    settings = (*_settings(temperature, datasets), *overrides)
    config = _named(pair_config(config_path, settings, **pair), config_path)
    other = config_path is not None and (pair["target"] is not None or pair["draft"] is not None)
    options = ProfileOptions(candidate=other, tails=not given.pop("no_tails"), **given)
    out = console(as_json)
    with ConsoleReporter(out) as reporter:
        done = run(config, reporter, options)
    print_profile(out, done.document, config.speculation.k, rule_of(config))
    out.print(f"\nProfile: {done.path}", soft_wrap=True)
    if as_json:
        print_json(done.document.model_dump(mode="json") | {"path": done.path})
    return 0


def _settings(temperature: float | None, datasets: tuple[str, ...]) -> list[str]:
    """Flags as overrides of keys. A dataset is FILE:DOMAIN; the file's name is the domain where none is said."""
    found = [] if temperature is None else [f"validation.temperature={float(temperature)}"]
    rows = []
    for text in datasets:
        file, _, domain = text.rpartition(":") if ":" in text else (text, "", Path(text).stem)
        rows.append({"path": str(Path(file).expanduser().absolute()), "domain": domain})
    return [*found, f"validation.datasets={json.dumps(rows)}"] if rows else found


def _named(config: RunConfig, config_path: Path | None) -> RunConfig:
    """A pair without a file is named after its models, so that two pairs have two report folders."""
    if config_path is not None:
        return config
    names = [
        (s.path.name if s.path else str(s.hub).rpartition("/")[2]) for s in (config.pair.target, config.pair.draft)
    ]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", "+".join(names)).strip("-.")[:64]
    return config.model_copy(update={"name": name or config.name})
