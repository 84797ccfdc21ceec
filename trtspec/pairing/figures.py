"""Figures of the report below its findings: the speed-up over draft lengths and acceptance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

COLUMNS = 9
"""Draft lengths shown at most."""


def figures(facts: Mapping[str, Any]) -> list[RenderableType]:
    """A titled table for each set of figures there is."""
    economics = facts.get("economics")
    if economics is None:
        return []
    return [Text(_title(economics), style="bold"), speedup_table(economics), Text(economics["caption"], style="dim")]


def _title(economics: Mapping[str, Any]) -> str:
    c, source = economics["cost_ratio"], economics["cost_source"]
    return f"\nExpected speed-up over target-only decoding, c = {c:.3f} ({source})"


def speedup_table(economics: Mapping[str, Any]) -> Table:
    """α by K; the configured K is marked, and below the rows stand the α at which each K breaks even."""
    shown = _shown(economics["ks"], economics["k"])
    table = Table(box=None, padding=(0, 1))
    table.add_column("α", justify="right")
    for k in shown:
        table.add_column(f"K={k}" + ("*" if k == economics["k"] else ""), justify="right")
    table.add_column("best", justify="right")
    for alpha, row, best in zip(economics["alphas"], economics["speedup"], economics["best"], strict=True):
        cells = [Text(f"{row[k - 1]:.2f}×", style="" if row[k - 1] > 1 else "red") for k in shown]
        name = f"K={best['k']} {best['speedup']:.2f}×" if best["k"] else "none"
        table.add_row(f"{alpha:.3g}", *cells, name)
    table.add_row("even", *[_even(economics["break_even"][k - 1]) for k in shown], "", style="dim")
    return table


def _even(alpha: float | None) -> str:
    return "never" if alpha is None else f"{alpha:.2f}"


def _shown(ks: list[int], k: int) -> list[int]:
    """All draft lengths if few, else about COLUMNS of them spread evenly, the configured one among them."""
    step = max(1, -(-len(ks) // COLUMNS))
    return sorted({*ks[::step], k})
