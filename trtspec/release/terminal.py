"""The report on a terminal: a table where there is room for one, blocks of name and value on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from trtspec.measurement.result import DomainResult, ResultDocument
from trtspec.release import words
from trtspec.release.gates import Judgement
from trtspec.release.rows import Outcome

WIDE = 100
"""Columns from which on the domains are a table."""
STYLES: dict[Outcome, str] = {
    "pass": "green",
    "fail": "red",
    "undecided": "yellow",
    "invalid": "red",
    "not measured": "yellow",
    "off": "yellow",
    "not judged": "dim",
}
HEADINGS = (
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


def print_report(out: Console, result: ResultDocument, judgement: Judgement) -> None:
    """The terminal report."""
    out.print(Terminal(result, judgement))


def gate_table(judgement: Judgement, *, stacked: bool = False) -> Table:
    """Outcome, rule and reason of each gate; `stacked` puts the reason below the rule."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(2 if stacked else 3):
        table.add_column(overflow="fold")
    for row in judgement.rows:
        name, reason = words.visible(f"{row.name}: {row.subject}"), words.visible(row.reason)
        cells = [Text(f"{name}\n{reason}")] if stacked else [Text(name), Text(reason)]
        table.add_row(Text(row.outcome, STYLES[row.outcome]), *cells)
    return table


@dataclass(frozen=True)
class Terminal:
    """Domains, gates and the verdict, as wide as the terminal allows."""

    result: ResultDocument
    judgement: Judgement

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Called by rich with the width there is."""
        del console
        result, judgement = self.result, self.judgement
        yield Text(words.visible(f"{result.pair}: {result.conditions.summary()}"), "bold")
        yield Text()
        yield self._table() if options.max_width >= WIDE else self._blocks()
        yield Text()
        yield Text(words.DEFINITIONS, "dim")
        yield Text()
        yield gate_table(judgement, stacked=options.max_width < WIDE)
        yield Text()
        yield Text(words.visible(judgement.headline()), f"bold {STYLES[judgement.verdict]}")

    def _table(self) -> Table:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for i, heading in enumerate(HEADINGS):
            side: JustifyMethod = "left" if i in (0, len(HEADINGS) - 1) else "right"
            table.add_column(heading.replace(" ", "\n", 1), justify=side, overflow="fold", vertical="top")
        for domain in self.result.domains:
            # An interval goes below its estimate, so that the table fits the width of a log.
            table.add_row(*(Text(cell.replace(" [", "\n[")) for cell in self._cells(domain)))
        return table

    def _blocks(self) -> RenderableType:
        blocks: list[RenderableType] = []
        for domain in self.result.domains:
            name, *cells = self._cells(domain)
            table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
            table.add_column(no_wrap=True)
            table.add_column(overflow="fold")
            for heading, cell in zip(HEADINGS[1:], cells, strict=True):
                table.add_row(Text(heading.replace(" ÷", " ÷ "), "dim"), Text(cell))
            blocks += [Text(name, "bold"), table]
        return Group(*blocks)

    def _cells(self, domain: DomainResult) -> tuple[str, ...]:
        """One row under `HEADINGS`; what was not measured is a dash."""
        figures, exact = domain.figures, domain.exactness
        return (
            words.visible(domain.domain),
            str(domain.prompts),
            words.alpha(figures),
            words.number(figures.draft_acceptance_rate),
            words.number(figures.acceptance_length),
            words.rate(figures.target_only),
            words.rate(figures.speculative),
            words.estimate(figures.speedup),
            "–" if exact is None else f"{exact.equal}/{exact.compared}",
            words.drafts_of(domain.domain, self.judgement, self.result),
        )
