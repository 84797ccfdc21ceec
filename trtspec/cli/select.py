"""trtspec select: which draft for this target?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtspec.cli._options import download_option, json_option
from trtspec.cli._pair import HUB_ID, MODEL, cuts, pair_config
from trtspec.errors import ConfigError

if TYPE_CHECKING:
    from trtspec.config import ModelSource, RunConfig
    from trtspec.workflows.profile import ProfileOptions


@click.command()
@click.argument("paths", nargs=-1, metavar="[CONFIG]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key. Repeatable.")
@click.option("--target", metavar="DIR", help=f"The target: {MODEL}.")
@click.option("--candidates", multiple=True, metavar="DIR...", help=f"Drafts to compare: each {MODEL}.")
@click.option("--gpu", help="GPU kind to plan for, such as h100-80gb.")
@click.option("--count", type=int, help="GPUs of that kind in the machine.")
@click.option("--concurrency", type=click.IntRange(1, 1024), help="Requests in flight to decide for.")
@click.option("--alpha", "alphas", multiple=True, metavar="NAME=VALUE", help="Acceptance of a candidate, where you "
              "know it. Repeatable.")  # fmt: skip
@click.option("--profile", "measure", is_flag=True, help="Measure now what works and has no profile.")
@click.option("--limit", type=click.IntRange(1), help="With --profile: prompts of each domain.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="With --profile: where models run.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw the matrix into a PNG or SVG file.")
@download_option
@json_option
def select(
    paths: tuple[str, ...],
    overrides: tuple[str, ...],
    target: str | None,
    candidates: tuple[str, ...],
    gpu: str | None,
    count: int | None,
    concurrency: int | None,
    alphas: tuple[str, ...],
    measure: bool,
    limit: int | None,
    device: str,
    plot: Path | None,
    download: bool,
    as_json: bool,
) -> int:
    """Compare candidate drafts of one target: token ids, lineage, size, memory, speed, acceptance.

    Name the target and its drafts by a configuration file (whose own draft is the first candidate), or by --target and
    --candidates: folders, or hub ids of well-known models, which need no files. Candidates whose acceptance is known
    (a profile, or --alpha) are ranked by predicted speed-up; for the others the acceptance they need is shown, and
    none is assumed. Each rejected one is listed with its reason.

    Exit 0; 1 when no candidate works with the target.
    """
    from trtspec.cli._console import ConsoleReporter, console, print_json
    from trtspec.pairing.selection_plot import require_plot, write_plot
    from trtspec.pairing.selection_report import document, print_selection
    from trtspec.workflows.select import Options
    from trtspec.workflows.select import select as run

    if plot is not None:
        require_plot(plot)
    config_path, drafts = _told_apart(paths, candidates)
    settings = (*_load(concurrency, config_path is not None), *overrides)
    config, others = _models(config_path, settings, target, drafts, gpu, count)
    options = Options(
        alphas=_alphas(alphas),
        measure=_measuring(limit, device, download) if measure else None,
        cut=cuts(config_path, overrides),
        download=download,
    )
    out = console(as_json)
    with ConsoleReporter(out) as reporter:
        selection = run(config, others, options, reporter)
    print_selection(out, selection)
    if plot is not None:
        write_plot(selection, plot)
        out.print(f"Plot: {plot}", soft_wrap=True)
    if as_json:
        print_json(document(selection))
    return 0 if any(c.status != "rejected" for c in selection.candidates) else 1


def _told_apart(paths: tuple[str, ...], candidates: tuple[str, ...]) -> tuple[Path | None, list[str]]:
    """The configuration file, and the candidates: `--candidates A B C` leaves all but A among the arguments."""
    configs = [p for p in paths if Path(p).suffix in (".yaml", ".yml") or Path(p).is_file()]
    rest = [p for p in paths if p not in configs]
    if len(configs) > 1:
        raise ConfigError("more than one configuration file", found=", ".join(configs))
    if rest and not candidates:
        if configs or len(rest) > 1:
            raise ConfigError(f"what is {rest[0]}?", fix="name candidate drafts with --candidates")
        return Path(rest[0]), []  # whatever it is, reading it says what is wrong
    return Path(configs[0]) if configs else None, [*candidates, *rest]


def _models(
    config_path: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    drafts: list[str],
    gpu: str | None,
    count: int | None,
) -> tuple[RunConfig, list[ModelSource]]:
    """The configuration, whose draft is the first candidate, and the other candidates."""
    own = None
    if config_path is None:
        if target is None or not drafts:
            raise ConfigError(
                "nothing to choose from: name a configuration file, or --target and --candidates",
                fix="for example `trtspec select configs/tiny.yaml --candidates DIR`",
            )
        own, drafts = drafts[0], drafts[1:]
    config = pair_config(config_path, overrides, target=target, draft=own, gpu=gpu, count=count)
    return config, [_source(text) for text in drafts]


def _source(text: str) -> ModelSource:
    from trtspec.config import ModelSource

    folder = Path(text).expanduser()
    if folder.is_dir():
        return ModelSource(path=folder.resolve())
    if HUB_ID.fullmatch(text) and not folder.exists():
        return ModelSource(hub=text)
    raise ConfigError("no such folder for a candidate", where="--candidates", found=text, expected=MODEL)


def _load(concurrency: int | None, with_file: bool) -> list[str]:
    if concurrency is None:
        return []
    # Without a file nothing says how many the engines hold: as many as are asked for.
    batch = [] if with_file else [f"engine.max_batch_size={max(concurrency, 8)}"]
    return [f"validation.concurrency={concurrency}", *batch]


def _alphas(given: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in given:
        name, eq, value = text.rpartition("=")
        try:
            alpha = float(value)
        except ValueError:
            alpha = -1.0
        if not eq or not 0.0 <= alpha <= 1.0:
            raise ConfigError("an acceptance is NAME=VALUE with a value from 0 to 1", where="--alpha", found=text)
        found[name] = alpha
    return found


def _measuring(limit: int | None, device: str, download: bool) -> ProfileOptions:
    from trtspec.workflows.profile import ProfileOptions

    return ProfileOptions(limit=limit, device="cuda" if device == "cuda" else "cpu", download=download)
