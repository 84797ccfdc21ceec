"""What a page is made of: sections of charts and tables. All text in them is plain; the template escapes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trtspec.release.rows import Outcome
from trtspec.release.words import SIGNS

Cell = str | Markup


@dataclass(frozen=True)
class Key:
    """An entry of a chart's legend: `with` drafts or `without`."""

    kind: str
    name: str


BOTH = (Key("without", "target alone"), Key("with", "with drafts"))


@dataclass(frozen=True)
class Chart:
    """A figure with its caption."""

    title: str
    svg: Markup
    caption: str
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows under headings; the first cell of a row names it. `numeric` are the columns that stand to the right."""

    caption: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it."""

    title: str
    text: str = ""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()


def badge(outcome: Outcome) -> Markup:
    """An outcome as a word with a sign and a colour."""
    kind = outcome.replace(" ", "-")
    return Markup('<span class="state {}">{} {}</span>').format(kind, SIGNS[outcome], outcome)


def numeric(headings: Sequence[str], first: int = 1) -> frozenset[int]:
    """All columns from `first` on."""
    return frozenset(range(first, len(headings)))
