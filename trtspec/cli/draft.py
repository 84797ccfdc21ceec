"""trtspec draft: a draft made from its target, by cutting layers out or by distilling."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trtspec.cli._options import json_option

if TYPE_CHECKING:
    from trtspec.distil.recipe import Recipe

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def draft() -> None:
    """Make a draft out of a target: `early-exit` in seconds and usually poor, `distill` in minutes to hours."""


@draft.command("early-exit")
@click.option("--target", required=True, type=_FOLDER, help="The target's Hugging Face folder.")
@click.option("--out", required=True, type=_FOLDER, help="Where the draft's folder goes.")
@click.option("--layers", type=click.IntRange(min=1), help="Keep the first so many layers.")
@click.option("--keep", metavar="LIST", help="Keep these layers, such as 0-2,28,29.")
@click.option("--prompts", multiple=True, type=_FILE, help="Prompts (JSONL) to measure on. Repeatable.")
@click.option("--draft-len", default=4, show_default=True, type=click.IntRange(1, 16), help="K of the measured rounds.")
@click.option("--limit", type=click.IntRange(min=1), help="Measure on the first so many prompts.")
@json_option
def early_exit(
    target: Path,
    out: Path,
    layers: int | None,
    keep: str | None,
    prompts: tuple[Path, ...],
    draft_len: int,
    limit: int | None,
    as_json: bool,
) -> None:
    """Cut some of the target's layers out as a draft, and measure its acceptance.

    Copies byte ranges, so memory does not grow with the model. Without --prompts it is measured on a few built-in ones.
    """
    from trtspec.checkpoint.early_exit import layers_named
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.errors import ConfigError
    from trtspec.workflows.early_exit import UNTRAINED
    from trtspec.workflows.early_exit import early_exit as run

    if (layers is None) == (keep is None):
        raise ConfigError("say which layers stay", expected="one of --layers N and --keep LIST")
    chosen = tuple(range(layers or 0)) if keep is None else layers_named(keep)
    terminal = console(as_json)
    with ConsoleReporter(terminal) as reporter:
        cut = run(target, out, chosen, prompts, k=draft_len, limit=limit, reporter=reporter)
    said = cut.measured.as_dict()["verdict"] if cut.measured else [f"Not measured: {cut.why_not}."]
    for line in [f"Draft: {out}", *said, UNTRAINED]:
        terminal.print(line, markup=False, soft_wrap=True)
    if as_json:
        print_json(
            {
                "draft": out,
                "layers": cut.plan.keep,
                "bytes": cut.plan.nbytes,
                "action": cut.outcome.action,
                "acceptance": cut.measured.as_dict() if cut.measured else None,
                "not_measured": cut.why_not or None,
            }
        )


@draft.command()
@click.option("--target", required=True, type=_FOLDER, help="The target's Hugging Face folder.")
@click.option("--out", required=True, type=_FOLDER, help="Where the draft's folder goes.")
@click.option(
    "--prompts", multiple=True, required=True, type=_FILE, help="Prompts (JSONL) of the deployment. Repeatable."
)
@click.option(
    "--held-out", multiple=True, type=_FILE, help="Prompts to judge on; default a fifth of --prompts. Repeatable."
)
@click.option("--keep-layers", metavar="LIST", help="Start from these layers of the target, such as 0-2,28,29.")
@click.option("--layers", type=click.IntRange(min=1), help="Start from nothing: number of layers.")
@click.option("--hidden", type=click.IntRange(min=1), help="From nothing: hidden size.")
@click.option("--intermediate", type=click.IntRange(min=1), help="From nothing: FFN size.")
@click.option("--heads", type=click.IntRange(min=1), help="From nothing: attention heads.")
@click.option("--kv-heads", type=click.IntRange(min=1), help="From nothing: KV heads; default as many as heads.")
@click.option("--head-dim", type=click.IntRange(min=2), help="From nothing: head size; default hidden ÷ heads.")
@click.option("--like-target", is_flag=True, help="From nothing: the target's architecture instead of Llama's.")
@click.option(
    "--tokens", default=50_000, show_default=True, type=click.IntRange(min=1), help="Answer tokens to learn from."
)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="Longest answer where a prompt does not say; default 64."
)
@click.option(
    "--minutes", default=10.0, show_default=True, type=click.FloatRange(min=0, min_open=True), help="Training time."
)
@click.option("--steps", default=0, type=click.IntRange(min=0), help="Instead of --minutes: repeatable on any machine.")
@click.option("--batch", default=16, show_default=True, type=click.IntRange(min=1), help="Texts a step.")
@click.option(
    "--lr", "rate", type=click.FloatRange(min=0, min_open=True), help="AdamW's rate; default 1e-3, with Muon 3e-3."
)
@click.option("--optimizer", default="auto", show_default=True, type=click.Choice(["auto", "adamw", "muon"]),
              help="auto: AdamW from layers, Muon from nothing.")  # fmt: skip
@click.option(
    "--temperature", default=0.0, show_default=True, type=click.FloatRange(0, 10), help="The deployment's; 0 is greedy."
)
@click.option("--top", default=64, show_default=True, type=click.IntRange(min=0),
              help="Likeliest target tokens kept of each position; 0: all, computed anew at every step.")  # fmt: skip
@click.option("--draft-len", default=4, show_default=True, type=click.IntRange(1, 16), help="K of the measured rounds.")
@click.option(
    "--eval-every", default=50, show_default=True, type=click.IntRange(min=1), help="Steps between evaluations."
)
@click.option("--patience", default=6, show_default=True, type=click.IntRange(min=0),
              help="End after so many evaluations without gain; 0: never.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--precision", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"]))
@click.option("--work", type=_FOLDER, help="Texts and state; default <out>.work.")
@click.option("--resume", is_flag=True, help="Go on with an earlier run of the same settings.")
@json_option
def distill(as_json: bool, **options: Any) -> None:
    """Train a small draft on its target's own answers to your prompts.

    The acceptance on prompts it never learns from is printed while it learns, and decides when to stop.
    """
    from dataclasses import asdict

    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.workflows.distil import distil

    terminal = console(as_json)
    own = {name: options.pop(name) for name in ("target", "out", "prompts", "held_out", "work", "resume", "max_tokens")}
    with ConsoleReporter(terminal) as reporter:
        done = distil(recipe=_recipe(options), reporter=reporter, **own)
    found = done.measured.as_dict()
    for line in [f"Draft: {own['out']}", *found["verdict"]]:
        terminal.print(line, markup=False, soft_wrap=True)
    if as_json:
        history = [vars(e) for e in done.history]
        facts = {"texts": done.texts, "tokens": done.tokens, "ended": done.ended, "recipe": asdict(done.recipe)}
        print_json({"draft": own["out"], **facts, "history": history, "acceptance": found})


def _recipe(options: dict[str, Any]) -> Recipe:
    """The recipe of the flags; ConfigError where sizes are missing or contradict the layers."""
    from trtspec.checkpoint.early_exit import layers_named
    from trtspec.distil.recipe import Recipe, Scratch
    from trtspec.errors import ConfigError

    keep, like = options.pop("keep_layers"), options.pop("like_target")
    sizes = {name: options.pop(name) for name in ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim")}
    needed = [name for name in ("layers", "hidden", "intermediate", "heads") if sizes[name] is None]
    scratch = None
    if any(value is not None for value in sizes.values()):
        if needed:
            raise ConfigError("a draft from nothing needs all its sizes", found=f"no --{', no --'.join(needed)}")
        sizes["kv_heads"] = sizes["kv_heads"] or sizes["heads"]
        sizes["head_dim"] = sizes["head_dim"] or max(2, sizes["hidden"] // sizes["heads"])
        scratch = Scratch(**sizes, like_target=like)
    options["rate"] = options["rate"] or 0.0
    return Recipe(keep_layers=layers_named(keep) if keep else (), scratch=scratch, **options)
