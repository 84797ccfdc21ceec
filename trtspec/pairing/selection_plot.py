"""The decision matrix as a picture: predicted speed-up over draft lengths, and over requests in flight."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trtspec.errors import BuildError, ConfigError, MissingError
from trtspec.pairing.selection import Judged, Selection

FORMATS = (".png", ".svg", ".pdf")


def require_plot(path: Path) -> None:
    """ConfigError for a file that is no picture, MissingError without matplotlib: both before any work."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError("no such kind of picture", where=path, expected=" or ".join(FORMATS))
    if importlib.util.find_spec("matplotlib") is None:
        fix = "install the `report` extra: pip install 'trtspec[report]', or '.[report]' from a clone"
        raise MissingError("a plot needs matplotlib", found="no matplotlib", fix=fix)


def write_plot(selection: Selection, path: Path) -> None:
    """Write the picture whole. A known acceptance is a line, a range a band between its ends."""
    require_plot(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [c for c in selection.candidates if c.status != "rejected" and c.economics is not None]
    loads = any(c.economics and c.economics["concurrency"] for c in shown)
    figure, axes = pyplot.subplots(1, 2 if loads else 1, figsize=(11 if loads else 6.5, 4.5), squeeze=False)
    try:
        _by_length(axes[0][0], shown)
        if loads:
            _by_load(axes[0][1], shown)
        axes[0][0].set_ylabel("predicted speed-up over no speculation")
        figure.suptitle(_title(selection), fontsize=10)
        figure.tight_layout()
        beside = path.with_name(f".{path.name}.partial{path.suffix}")
        figure.savefig(beside, dpi=150)
        beside.replace(path)
    except OSError as error:
        raise BuildError(f"cannot write the plot: {error.strerror}", where=path) from None
    finally:
        pyplot.close(figure)


def _title(selection: Selection) -> str:
    target, hardware = selection.config.pair.target, selection.config.hardware
    name = target.hub or (target.path.name if target.path else "target")
    return f"Drafts for {name}, {hardware.count}× {hardware.spec.title}; bands: acceptance not known"


def _by_length(axis: Any, shown: Sequence[Judged]) -> None:
    for i, c in enumerate(shown):
        assert c.economics is not None
        _draw(axis, f"C{i}", c, c.economics["ks"], c.economics["speedup"])
    axis.set_xlabel("draft tokens per round (K), batch 1")
    _finish(axis, bool(shown))


def _by_load(axis: Any, shown: Sequence[Judged]) -> None:
    for i, c in enumerate(shown):
        rows = c.economics["concurrency"] if c.economics else []
        if rows:
            gains = [[row["best"][a]["speedup"] for row in rows] for a in range(len(c.basis.rows))]
            _draw(axis, f"C{i}", c, [row["requests"] for row in rows], gains)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("requests in flight, best K")
    _finish(axis, bool(shown))


def _draw(axis: Any, colour: str, c: Judged, xs: Sequence[int], rows: Sequence[Sequence[float]]) -> None:
    alphas = [row.alpha for row in c.basis.rows]
    if len(rows) == 1:
        axis.plot(xs, rows[0], marker="o", markersize=3, color=colour, label=f"{c.name}, α = {alphas[0]:.2f}")
    else:
        label = f"{c.name}, α {alphas[0]:g}-{alphas[-1]:g}"
        axis.fill_between(xs, rows[0], rows[-1], alpha=0.2, color=colour, label=label)


def _finish(axis: Any, any_shown: bool) -> None:
    axis.axhline(1.0, color="black", linewidth=1, linestyle="--", label="no speculation")
    axis.grid(alpha=0.3)
    axis.set_ylim(bottom=0)
    if any_shown:
        axis.legend(fontsize=7)
