"""trtspec verify-checkpoint: is this checkpoint the model it is said to be?"""

from __future__ import annotations

from pathlib import Path

import click

from trtspec.cli._options import json_option

_FOLDER = click.Path(path_type=Path)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("verify-checkpoint")
@click.argument("model", metavar="HF_DIR", type=_FOLDER)
@click.argument("checkpoint", metavar="CKPT_DIR", type=_FOLDER)
@click.option("--prompts", multiple=True, type=_FILE, help="Prompts (JSONL); default a few that come with trtspec.")
@click.option("--draft", type=_FOLDER, help="The pair's draft: measure acceptance with this checkpoint as target.")
@click.option("--target", type=_FOLDER, help="The pair's target: measure acceptance with this checkpoint as draft.")
@click.option("--tensors-only", is_flag=True, help="Compare config.json and tensors only: needs no torch.")
@click.option("--max-kl", type=click.FloatRange(min=0), help="Judge logits by this mean KL in nats per position.")
@click.option("--draft-len", default=4, show_default=True, type=click.IntRange(1, 16), help="K of the measured rounds.")
@click.option("--limit", type=click.IntRange(min=1), help="Measure acceptance on so many prompts; default 32.")
@json_option
def verify_checkpoint(
    model: Path,
    checkpoint: Path,
    prompts: tuple[Path, ...],
    draft: Path | None,
    target: Path | None,
    tensors_only: bool,
    max_kl: float | None,
    draft_len: int,
    limit: int | None,
    as_json: bool,
) -> int:
    """Compare a TensorRT-LLM checkpoint with the Hugging Face folder it was made from.

    Unquantized tensors must be equal to the last bit, quantized ones within the rounding of their format, and the
    logits of the reference engine must be those of transformers. Exit 0 good, 1 does not hold, 4 a broken folder.
    """
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.cli._verified import render
    from trtspec.workflows.verify_checkpoint import verify_checkpoint as run

    terminal = console(as_json)
    with ConsoleReporter(terminal) as reporter:
        found = run(
            model, checkpoint, prompts, draft=draft, target=target, tensors_only=tensors_only, max_kl=max_kl,
            k=draft_len, limit=limit, reporter=reporter,
        )  # fmt: skip
    terminal.print(render(found))
    if as_json:
        print_json(found.as_dict())
    return 0 if found.holds else 1
