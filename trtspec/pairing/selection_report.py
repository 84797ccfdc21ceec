"""The decision matrix as a document and for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trtspec.pairing.counts import human
from trtspec.pairing.findings import Finding
from trtspec.pairing.measured import ALPHAS
from trtspec.pairing.selection import LINEAGE, PARITY, Judged, Mark, Selection

MARKS: dict[Mark, tuple[str, str]] = {
    "good": ("✓", "green"),
    "warning": ("!", "yellow"),
    "error": ("✗", "red"),
    "unknown": ("-", "dim"),
}
RANGE_ENDS = (ALPHAS[0], ALPHAS[-1])
WIDE = 105
"""Columns of a terminal that hold every column of the matrix."""
COST = 5
"""Column of c in the matrix, left out where there is no room."""
SHOWN = 2
"""Reasons shown for each rejected candidate; `--json` has all."""


def document(selection: Selection) -> dict[str, Any]:
    """For `--json`: `candidates` best first, `baseline` the target without a draft."""
    config = selection.config
    ranked = selection.of("ranked")
    return {
        "name": config.name,
        "hardware": {"gpu": config.hardware.spec.title, "count": config.hardware.count},
        "load": {
            "concurrency": config.validation.concurrency,
            "max_seq_len": config.engine.max_seq_len,
            "max_batch_size": config.engine.max_batch_size,
        },
        "best": selection.best.name if selection.best else None,
        "baseline": selection.plain,
        "candidates": [_row(c) | {"rank": ranked.index(c) + 1 if c in ranked else None} for c in selection.candidates],
        "notes": list(selection.notes),
    }


def _row(c: Judged) -> dict[str, Any]:
    facts, load = c.verdict.facts, c.load
    memory = facts.get("memory")
    return {
        "name": c.name,
        "folder": str(c.folder),
        "status": c.status,
        "verdict": c.verdict.verdict,
        "parity": c.mark(PARITY),
        "lineage": c.mark(LINEAGE),
        "parameters": facts["draft"]["parameters"],
        "size_ratio": c.ratio,
        "cost_ratio": c.economics["cost_ratio"] if c.economics else None,
        "cost_source": c.economics["cost_source"] if c.economics else None,
        "memory": memory
        and {name: memory[name] for name in ("placement", "cache_tokens", "largest_batch", "largest_seq_len", "fits")},
        "acceptance": {
            "known": c.basis.known,
            "source": c.basis.source,
            "alphas": [row.alpha for row in c.basis.rows],
            "interval": c.interval,
            "note": c.note or None,
        },
        "predicted": None
        if load is None
        else {
            "requests": load.requests,
            "k": list(load.k),
            "speedup": list(load.speedup),
            "break_even_alpha": load.break_even,
            "ms_per_token": list(load.ms_per_token),
            "tokens_per_second": list(load.tokens_per_second),
        },
        "rejected_by": [_reason(f) for f in c.errors],
        "warnings": [_reason(f) for f in c.warnings],
    }


def _reason(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code, "message": finding.message, "fix": finding.fix}


def print_selection(out: Console, selection: Selection) -> None:
    """The terminal report."""
    out.print(render(selection, wide=out.width >= WIDE))


def render(selection: Selection, *, wide: bool = True) -> RenderableType:
    """The matrix, what each candidate costs or risks, the rejected with reasons, and what follows."""
    parts: list[RenderableType] = [Text(_title(selection), "bold"), Text(), matrix(selection, wide=wide)]
    warned = [c for c in selection.candidates if c.warnings and c.status != "rejected"]
    parts += [Text(), *_costs(warned)] if warned else []
    rejected = selection.of("rejected")
    parts += [Text(), *_rejected(rejected)] if rejected else []
    parts += [Text(), *(Text(note, "dim") for note in (*selection.notes, *_caption(selection)))]
    return Group(*parts, Text(), conclusion(selection))


def _title(selection: Selection) -> str:
    c = selection.config
    where = f"{c.hardware.count}× {c.hardware.spec.title}" if c.hardware.count > 1 else c.hardware.spec.title
    target = c.pair.target
    name = target.hub or (target.path.name if target.path else "target")
    split = f", tensor parallel {target.parallelism.tensor}" if target.parallelism.tensor > 1 else ""
    return f"Drafts for {name} on {where}{split}, sequences of {c.engine.max_seq_len:,} tokens"


def matrix(selection: Selection, *, wide: bool = True) -> Table:
    """One row for each candidate that works, best first, and one for the target alone. Times only if `wide`."""
    timed = wide and selection.plain["ms_per_token"] is not None
    stored = selection.plain["sequences"] is not None
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("")
    table.add_column("draft", overflow="fold", min_width=14)
    for heading in ("ids", "lineage"):
        table.add_column(heading, justify="center")
    headings = ["size", *(["c"] if wide else []), *(["fit"] if stored else []), "α", "K", "speed-up"]
    for heading in [*headings, *(["ms/token", "tokens/s"] if timed else [])]:
        table.add_column(heading, justify="right", no_wrap=True)
    rows: list[list[Text]] = []
    for number, c in enumerate(selection.of("ranked"), start=1):
        rows.append(_cells(c, str(number), timed, stored))
    above = sum(c.speedup > 1.0 for c in selection.of("ranked"))
    rows.insert(above, _plain(selection.plain, timed, stored))
    rows += [_cells(c, "?", timed, stored) for c in selection.of("unmeasured")]
    for row in rows:
        table.add_row(*(cell for i, cell in enumerate(row) if wide or i != COST))
    return table


def _plain(plain: dict[str, Any], timed: bool, stored: bool) -> list[Text]:
    cells = ["", plain["name"], "", "", "", ""]
    cells += [f"{plain['sequences']:,}"] if stored else []
    cells += ["", "", "1.00×"]
    cells += [f"{plain['ms_per_token']:.1f}", f"{plain['tokens_per_second']:,.0f}"] if timed else []
    return [Text(cell, "dim") for cell in cells]


def _cells(c: Judged, number: str, timed: bool, stored: bool) -> list[Text]:
    memory, load = c.verdict.facts.get("memory"), c.load
    size = c.verdict.facts["draft"]["parameters"]
    cells = [Text(number), Text(c.name), _mark(c.mark(PARITY)), _mark(c.mark(LINEAGE))]
    ratio = "" if c.ratio is None else f" {c.ratio:.0f}×"
    cells += [Text("-" if size is None else human(size) + ratio), Text(_figure(c.economics, "cost_ratio"))]
    cells += [Text(f"{memory['largest_batch']:,}" if memory else "-")] if stored else []
    cells += [Text(_alpha(c))]
    if load is None:
        return cells + [Text("-")] * (4 if timed else 2)
    cells += [Text(_span([str(k) for k in load.k])), Text(_span([f"{g:.2f}×" for g in load.speedup]), _tone(c))]
    if timed:
        cells += [Text(_span([f"{ms:.1f}" for ms in load.ms_per_token]))]
        cells += [Text(_span([f"{t:,.0f}" for t in load.tokens_per_second]))]
    return cells


def _mark(mark: Mark) -> Text:
    return Text(*MARKS[mark])


def _tone(c: Judged) -> str:
    return "" if c.status != "ranked" else "green" if c.speedup > 1.0 else "red"


def _figure(facts: dict[str, Any] | None, name: str) -> str:
    return "-" if facts is None else f"{facts[name]:.3f}"


def _alpha(c: Judged) -> str:
    """Known, its interval below it; or what it must exceed."""
    if not c.basis.known:
        needed = c.load.break_even if c.load is not None else 0.0
        return "never" if needed is None else f"? > {needed:.2f}"
    ends = f"\n[{c.interval[0]:.2f}, {c.interval[1]:.2f}]" if c.interval else ""
    return f"{c.basis.rows[0].alpha:.2f}{ends}"


def _span(values: Sequence[str]) -> str:
    """One value, or the first and last of a range."""
    return values[0] if len(set(values)) == 1 else f"{values[0]}-{values[-1]}"


def _findings_table() -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(width=1)
    table.add_column(overflow="fold", max_width=32)
    table.add_column(ratio=1, overflow="fold")
    return table


def _costs(candidates: Sequence[Judged]) -> list[RenderableType]:
    """Warnings, each once, with the candidates that have it."""
    found: dict[tuple[str, str], tuple[Finding, list[str]]] = {}
    for c in candidates:
        for finding in c.warnings:
            found.setdefault((finding.code, finding.message), (finding, []))[1].append(c.name)
    table = _findings_table()
    for finding, names in found.values():
        who = "all" if len(names) == len(candidates) > 1 else ", ".join(names)
        table.add_row(Text("!", "yellow"), Text(who), _said(finding, "dim"))
    return [Text("Costs or risks", "bold"), table]


def _rejected(candidates: Sequence[Judged]) -> list[RenderableType]:
    """Each rejected candidate with its reasons, the fix below each."""
    table = _findings_table()
    for c in candidates:
        for i, finding in enumerate(c.errors[:SHOWN]):
            table.add_row(Text("✗", "red"), Text(c.name if i == 0 else ""), _said(finding, "bold"))
        if len(c.errors) > SHOWN:
            table.add_row("", "", Text(f"and {len(c.errors) - SHOWN} more: `trtspec check`", "dim"))
    return [Text("Rejected", "bold"), table]


def _said(finding: Finding, style: str) -> Text:
    text = Text(f"{finding.code}: {finding.message}")
    return text.append(f"\n→ {finding.fix}" if finding.fix else "", style=style)


def _caption(selection: Selection) -> list[str]:
    k = selection.config.speculation.k
    load = next((c.load for c in selection.candidates if c.load is not None), None)
    economics = next((c.economics for c in selection.candidates if c.economics is not None), None)
    if load is None or economics is None:
        return ["Nothing is predicted: a size is not known."]
    at = f"{load.requests} in flight" if load.plain_ms_per_token is not None else "batch 1, only ratios are known"
    lines = [
        f"Predicted at {at}, with the best K up to {selection.config.speculation.max_draft_len}. "
        f"c: draft step ÷ target step at batch 1 ({economics['cost_source']}).",
    ]
    if selection.plain["sequences"] is not None:
        lines.append(f"fit: sequences of full length that the KV caches hold. {_placements(selection)}".rstrip())
    if any(not c.basis.known for c in selection.candidates if c.status != "rejected"):
        ends = economics["alphas"] if not economics["alpha_known"] else RANGE_ENDS
        lines.append(
            f"? : acceptance is not known. It must exceed the α shown to break even at K={k}; figures are for "
            f"α {ends[0]:g} to {ends[-1]:g}."
        )
    return lines


def _placements(selection: Selection) -> str:
    """Who shares the target's GPUs, where candidates differ in that."""
    where: dict[str, list[str]] = {}
    for c in selection.candidates:
        memory = c.verdict.facts.get("memory")
        if memory and c.status != "rejected":
            where.setdefault(memory["placement"], []).append(c.name)
    if len(where) < 2:
        return ""
    return f"On the target's GPUs: {', '.join(where['shared'])}; on GPUs of their own: {', '.join(where['separate'])}."


def conclusion(selection: Selection) -> Text:
    """What follows from the matrix."""
    best, unmeasured = selection.best, selection.of("unmeasured")
    if best is not None:
        line = Text(f"Best: {best.name}, {best.speedup:.2f}× predicted at α {best.basis.rows[0].alpha:.2f} ", "bold")
        line.append(f"({best.basis.source})")
    elif selection.of("ranked"):
        line = Text("No candidate whose acceptance is known gains: serve the target without speculation", "bold")
    elif unmeasured:
        line = Text("Undecided: no acceptance is known", "bold")
    else:
        return Text("No candidate works with this target", "bold red")
    if unmeasured:
        names = ", ".join(c.name for c in unmeasured)
        line.append(f"\nAcceptance decides, and is not measured for {names}: `trtspec profile`, or select --profile")
    return line
