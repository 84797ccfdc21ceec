"""The verdict for people: ✓ ! ✗ by subject with the fix beside it, then the figures.

Errors and warnings have a line each. What is good is one line a subject, and what could not be measured another,
unless every finding is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from trtspec.pairing.counts import human
from trtspec.pairing.figures import figures
from trtspec.pairing.findings import NOT_MEASURED, Finding, Verdict

MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "info": ("✓", "green"), "unknown": ("-", "dim")}
WORDS = {"pass": ("pass", "green"), "warn": ("pass with warnings", "yellow"), "fail": ("fail", "red")}
SUBJECTS = {
    "files": ("config", "weights"),
    "tokens": ("tokenizer", "vocab"),
    "segmentation": ("segmentation",),
    "special tokens": ("special", "stops", "bos"),
    "chat template": ("template",),
    "sizes": ("widths", "size", "lengths"),
    "lineage": ("lineage",),
    "build": ("preflight", "engine"),
    "memory": ("memory",),
    "serving": ("serving",),
    "economics": ("economics",),
}
"""Subject → the first words of its codes, in the order of the report."""
UNKNOWN = {
    "config": "config.json",
    "weights": "weights",
    "vocab": "token ids",
    "stops": "end ids",
    "widths": "widths",
    "lengths": "context lengths",
    "size": "parameters",
    "lineage": "architectures",
    "preflight": "rules of the build",
    "memory": "memory",
    "economics": "speed-up",
}
"""First word of a code → what it is that was not measured."""
SIDE_BY_SIDE = 112
"""Columns from which a fix stands beside its finding; on narrower pages it stands below."""
BRIEF = 72
"""Characters of a good finding on its subject's one line."""


def print_verdict(console: Console, verdict: Verdict, *, verbose: bool = False) -> None:
    """Write the whole report to `console`; `verbose` gives every finding its line."""
    console.print(render(verdict, verbose=verbose))


def render(verdict: Verdict, *, verbose: bool = False) -> RenderableType:
    """Both models, findings by subject, figures, and the verdict."""
    return Group(_models(verdict), FindingsTable(verdict, verbose), *figures(verdict.facts), verdict_line(verdict))


def _models(verdict: Verdict) -> Table:
    """One line for each model: where it is and how large."""
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for role in ("target", "draft"):
        facts = verdict.facts.get(role)
        if facts:
            shape = [facts["parameters"] and human(facts["parameters"]), facts["architecture"], facts["dtype"]]
            text = Text(facts["folder"] or facts["name"])
            table.add_row(role, text.append("  " + ", ".join(str(part) for part in shape if part), style="dim"))
    return table


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    mark: str
    subject: str
    text: Text
    fix: Text


@dataclass(frozen=True)
class FindingsTable:
    """All findings by subject. How they are laid out depends on the page."""

    verdict: Verdict
    verbose: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Mark, subject, finding; the fix beside it, or below on a narrow page. A finding without one has the room."""
        rows = list(self._rows())
        subject = max((len(row.subject) for row in rows), default=0)
        wide = options.max_width >= SIDE_BY_SIDE
        yield Text("")
        for row in rows:
            yield _line(row, subject, beside=wide and bool(row.fix))

    def _rows(self) -> Iterator[Row]:
        for subject in (*SUBJECTS, ""):
            mine = [f for f in self.verdict.findings if subject_of(f) == subject]
            title = subject
            for row in _rows_of(sorted(mine, key=_rank), self.verbose):
                yield Row(row.mark, title, row.text, row.fix)
                title = ""  # once is enough
        unknown = [f for f in self.verdict.findings if _mark(f) == "unknown"]
        if unknown and not self.verbose:
            yield Row("unknown", "not measured", Text(" · ".join(_unknown(unknown)), style="dim"), Text(""))


def _line(row: Row, subject: int, *, beside: bool) -> Table:
    mark, colour = MARKS[row.mark]
    table = Table(box=None, padding=(0, 1), show_header=False, expand=True)
    table.add_column(width=1)
    table.add_column(width=subject)
    table.add_column(ratio=3, overflow="fold")
    cells = [row.text]
    if beside:
        table.add_column(ratio=2, overflow="fold")
        cells.append(row.fix)
    elif row.fix:
        cells = [Text.assemble(row.text, "\n", row.fix)]
    table.add_row(Text(mark, style=colour), Text(row.subject, style="bold"), *cells)
    return table


def subject_of(finding: Finding) -> str:
    """The subject a finding belongs to, by the first word of its code; empty for a word not listed."""
    word = finding.code.partition(".")[0]
    return next((subject for subject, words in SUBJECTS.items() if word in words), "")


def _rank(finding: Finding) -> int:
    return list(MARKS).index(_mark(finding))


def _mark(finding: Finding) -> str:
    return "unknown" if finding.code.endswith(NOT_MEASURED) else finding.severity


def _rows_of(findings: list[Finding], verbose: bool) -> Iterator[Row]:
    for finding in findings:
        if verbose or finding.severity != "info":
            yield _own_row(finding)
    good = [finding for finding in findings if _mark(finding) == "info"]
    if good and not verbose:
        yield Row("info", "", Text(" · ".join(_good(good))), Text(""))


def _own_row(finding: Finding) -> Row:
    about = "" if finding.subject == "pair" else f"{finding.subject}: "
    text = Text(about + finding.message).append(f"  {finding.code}", style="dim")
    return Row(_mark(finding), "", text, _fix(finding))


def _fix(finding: Finding) -> Text:
    return Text(f"→ {finding.fix}" if finding.fix else "", style="dim" if finding.severity == "info" else "")


def _good(findings: list[Finding]) -> Iterator[str]:
    """What several findings say, in short; the same of both models is said once."""
    said: dict[str, list[str]] = {}
    for finding in findings:
        said.setdefault(finding.brief or brief(finding.message), []).append(finding.subject)
    for text, subjects in said.items():
        yield text if "pair" in subjects else f"{' and '.join(subjects)}: {text}"


def _unknown(findings: list[Finding]) -> Iterator[str]:
    """What could not be measured, and of which model where it is of one."""
    about: dict[str, list[str]] = {}
    for finding in findings:
        about.setdefault(UNKNOWN[finding.code.partition(".")[0]], []).append(finding.subject)
    for what, subjects in about.items():
        yield what if "pair" in subjects else f"{what} of {' and '.join(subjects)}"


def brief(message: str) -> str:
    """The message without what stands in brackets, up to its first explanation, and not much of it."""
    first = re.split(r"; |: (?=[a-z])", re.sub(r" \([^()]*\)", "", message), maxsplit=1)[0]
    return first if len(first) <= BRIEF else first[: BRIEF - 1] + "…"


def verdict_line(verdict: Verdict) -> Text:
    """Verdict, with counts and what could not be measured."""
    word, colour = WORDS[verdict.verdict]
    line = Text("\nVerdict: ").append(word, style=f"bold {colour}")
    counts = [(sum(f.severity == s for f in verdict.findings), s) for s in ("error", "warning")]
    parts = [f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n]
    parts += [f"{verdict.not_measured} not measured"] if verdict.not_measured else []
    return line.append(f" ({', '.join(parts)})") if parts else line
