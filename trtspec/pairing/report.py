"""The verdict for people: a table of ✓ ! ✗ with the fix beside it, then the speed-up table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trtspec.pairing.findings import NOT_MEASURED, Finding, Verdict

MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "info": ("✓", "green")}
WORDS = {"pass": ("pass", "green"), "warn": ("pass with warnings", "yellow"), "fail": ("fail", "red")}
CAPTION = (
    "* configured. Independent acceptance, verifying costs one step, no overhead: "
    "measure the rest with `trtspec validate`."
)
COLUMNS = 9
"""Draft lengths shown at most."""


def print_verdict(console: Console, verdict: Verdict) -> None:
    """Write the whole report to `console`."""
    console.print(render(verdict))


def render(verdict: Verdict) -> RenderableType:
    """Findings, the speed-up table where there is one, and the verdict."""
    parts: list[RenderableType] = [findings_table(verdict)]
    economics = verdict.facts.get("economics")
    if economics is not None:
        parts += [Text(_title(economics), style="bold"), speedup_table(economics), Text(CAPTION, style="dim")]
    return Group(*parts, verdict_line(verdict))


def _title(economics: Mapping[str, Any]) -> str:
    c, source = economics["cost_ratio"], economics["cost_source"]
    return f"\nExpected speed-up over target-only decoding, c = {c:.3f} ({source})"


def findings_table(verdict: Verdict) -> Table:
    """One row per finding: errors first, then warnings, then what is good, then what is unknown."""
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(ratio=3, overflow="fold")
    for finding in sorted(verdict.findings, key=_rank):
        mark, colour = ("-", "dim") if finding.code.endswith(NOT_MEASURED) else MARKS[finding.severity]
        about = "" if finding.subject == "pair" else f"{finding.subject}: "
        text = Text(about + finding.message)
        if finding.fix:
            text.append(f"\n→ {finding.fix}", style="dim" if finding.severity == "info" else "bold")
        table.add_row(Text(mark, style=colour), Text(finding.code, style=colour), text)
    return table


def _rank(finding: Finding) -> int:
    return ["error", "warning", "info"].index(finding.severity) + finding.code.endswith(NOT_MEASURED)


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
        table.add_row(f"{alpha:g}", *cells, name)
    table.add_row("even", *[_even(economics["break_even"][k - 1]) for k in shown], "", style="dim")
    return table


def _even(alpha: float | None) -> str:
    return "never" if alpha is None else f"{alpha:.2f}"


def _shown(ks: list[int], k: int) -> list[int]:
    """All draft lengths if few, else about COLUMNS of them spread evenly, the configured one among them."""
    step = max(1, -(-len(ks) // COLUMNS))
    return sorted({*ks[::step], k})


def verdict_line(verdict: Verdict) -> Text:
    """Verdict, with counts and what could not be measured."""
    word, colour = WORDS[verdict.verdict]
    line = Text("\nVerdict: ").append(word, style=f"bold {colour}")
    counts = [(sum(f.severity == s for f in verdict.findings), s) for s in ("error", "warning")]
    parts = [f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n]
    parts += [f"{verdict.not_measured} not measured"] if verdict.not_measured else []
    return line.append(f" ({', '.join(parts)})") if parts else line
