"""The report of a validation: one JSON document for machines, Markdown for a pull request, a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from trtspec.config.validation import Gates
from trtspec.measurement.result import DomainResult, Percentiles, Performance, Record, ResultDocument
from trtspec.release.gates import GateRow, Judgement, Outcome, interval_text
from trtspec.store import write_atomic

_STYLES: dict[Outcome, str] = {
    "pass": "green",
    "fail": "red",
    "undecided": "yellow",
    "invalid": "red",
    "off": "yellow",
    "not judged": "dim",
}
_HEADINGS = (
    "domain",
    "prompts",
    "α [95 %]",
    "accepted ÷drafted",
    "tokens a round",
    "tokens/s without",
    "tokens/s with",
    "speed-up [95 %]",
    "greedy equal",
    "drafts",
)
DEFINITIONS = (
    "α = accepted ÷ tested draft tokens (drafts behind a rejection were never tested); [95 %] is a bootstrap interval "
    "over prompts for α, over blocks of requests for the speed-up. Tokens a round count the target's own. Speed-up is "
    "throughput with ÷ without speculation, both measured in turns in this run."
)


class Report(Record):
    """What was measured, by which rules it was judged, and the verdict."""

    version: Literal[1] = 1
    result: ResultDocument
    gates: Gates
    judgement: Judgement


def report_schema() -> dict[str, object]:
    """JSON Schema of report.json; `result` within it is that of result.json."""
    return Report.model_json_schema()


def write_report(folder: Path, result: ResultDocument, judgement: Judgement, gates: Gates) -> Path:
    """Write result.json, report.md and report.json into `folder`, each whole; returns the path of report.json.

    report.json comes last: where it is new, the others are too.
    """
    report = Report(result=result, gates=gates, judgement=judgement)
    write_atomic(folder / "result.json", result.model_dump_json(indent=1) + "\n")
    write_atomic(folder / "report.md", markdown(result, judgement))
    write_atomic(folder / "report.json", report.model_dump_json(indent=1) + "\n")
    return folder / "report.json"


def print_report(out: Console, result: ResultDocument, judgement: Judgement) -> None:
    """The terminal report."""
    out.print(terminal(result, judgement))


def terminal(result: ResultDocument, judgement: Judgement) -> RenderableType:
    """Domains, gates and the verdict, for a terminal."""
    domains = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for i, heading in enumerate(_HEADINGS):
        side: JustifyMethod = "left" if i in (0, len(_HEADINGS) - 1) else "right"
        domains.add_column(heading.replace(" ", "\n", 1), justify=side, overflow="fold", vertical="top")
    for domain in result.domains:
        # An interval goes below its estimate, so that the table fits the width of a log.
        domains.add_row(*(Text(cell.replace(" [", "\n[")) for cell in _cells(domain, judgement, result.conditions.k)))
    gates = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for row in judgement.rows:
        gates.add_row(Text(row.outcome, _STYLES[row.outcome]), Text(f"{row.name}: {row.subject}"), Text(row.reason))
    verdict = Text(judgement.headline(), f"bold {_STYLES[judgement.verdict]}")
    title = Text(f"{result.pair}: {result.conditions.summary()}", "bold")
    return Group(title, Text(), domains, Text(), Text(DEFINITIONS, "dim"), Text(), gates, Text(), verdict)


def markdown(result: ResultDocument, judgement: Judgement) -> str:
    """The same as GitHub Markdown, with differences in context and failed requests."""
    lines = [
        f"# {result.pair}: {judgement.verdict}",
        f"**{_md(judgement.headline())}**",
        f"Measured {result.created}: {_md(result.conditions.summary())}.",
        _md_table(_HEADINGS, [_cells(d, judgement, result.conditions.k) for d in result.domains]),
        DEFINITIONS,
        "## Gates",
        _md_table(("gate", "subject", "outcome", "why"), [_gate_cells(row) for row in judgement.rows]),
        "## Latency",
        _md_table(
            (
                "domain",
                "mode",
                "requests",
                "p50 s",
                "p90 s",
                "p99 s",
                *(f"first token {p} s" for p in ("p50", "p90", "p99")),
            ),
            [cells for d in result.domains for cells in _latency(d)],
        ),
        *_positions(result),
        *_differences(result),
        *_failures(result),
        "## Environment",
        ", ".join(f"{name} {_md(value)}" for name, value in result.environment.items()),
    ]
    return "\n\n".join(lines) + "\n"


def _cells(domain: DomainResult, judgement: Judgement, k: int) -> tuple[str, ...]:
    """One row under `_HEADINGS`; what was not measured is a dash."""
    figures, exact = domain.figures, domain.exactness
    return (
        domain.domain,
        str(domain.prompts),
        "–" if figures.alpha is None else interval_text(figures.alpha),
        _number(figures.draft_acceptance_rate, 2),
        _number(figures.acceptance_length, 2),
        _rate(figures.target_only),
        _rate(figures.speculative),
        "–" if figures.speedup is None else interval_text(figures.speedup),
        "–" if exact is None else f"{exact.equal}/{exact.compared}",
        "off" if domain.domain in judgement.switched_off else f"K={k}",
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _rate(speed: Performance | None) -> str:
    return "–" if speed is None else _number(speed.tokens_per_second, 0)


def _gate_cells(row: GateRow) -> tuple[str, ...]:
    return row.name, row.subject, row.outcome, row.reason


def _latency(domain: DomainResult) -> list[tuple[str, ...]]:
    modes = (("target-only", domain.figures.target_only), ("speculative", domain.figures.speculative))
    return [
        (domain.domain, mode, str(speed.requests), *_seconds(speed.latency), *_seconds(speed.first_token))
        for mode, speed in modes
        if speed is not None
    ]


def _seconds(found: Percentiles | None) -> tuple[str, str, str]:
    return ("–", "–", "–") if found is None else (f"{found.p50:.3f}", f"{found.p90:.3f}", f"{found.p99:.3f}")


def _positions(result: ResultDocument) -> list[str]:
    measured = [(d.domain, d.figures.per_position) for d in result.domains if d.figures.per_position]
    if not measured:
        return []
    k = max(len(shares) for _, shares in measured)
    rows = [
        (domain, *(_number(shares[i] if i < len(shares) else None, 2) for i in range(k))) for domain, shares in measured
    ]
    return ["## P(position accepted)", _md_table(("domain", *map(str, range(1, k + 1))), rows)]


def _differences(result: ResultDocument) -> list[str]:
    rows = [
        (
            d.domain,
            x.prompt,
            x.kind,
            "–" if x.token is None else str(x.token),
            _number(x.gap, 4),
            f"…{x.before!r}",
            repr(x.target_only),
            repr(x.speculative),
            x.reason,
        )
        for d in result.domains
        if d.exactness
        for x in d.exactness.differences
    ]
    headings = ("domain", "prompt", "kind", "token", "logit gap", "after", "target only", "speculative", "note")
    return ["## First differences of greedy texts", _md_table(headings, rows)] if rows else []


def _failures(result: ResultDocument) -> list[str]:
    rows = [(d.domain, u.prompt, u.mode, u.reason) for d in result.domains for u in d.unusable]
    return ["## Requests without a usable answer", _md_table(("domain", "prompt", "mode", "why"), rows)] if rows else []


def _md_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(_md, line))} |" for line in lines)


def _md(text: str) -> str:
    """Text that stays text: model output and file names may hold markup."""
    for sign in ("\\", "`", "*", "_", "[", "]", "<", "|"):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
