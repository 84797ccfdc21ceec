"""A command-line argument of a tool as a row of a table, and the strict parser made from such rows.

Stricter than argparse in the real tools in one thing: an abbreviated argument is refused. A row whose first release
is not known is refused in every release before the one it is documented for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from .versions import order

Kind = Literal["int", "float", "str", "choice", "flag", "onoff", "path"]
ONOFF = ("enable", "disable")


@dataclass(frozen=True)
class Row:
    """One argument. `since` is the first release that has it, `before` the first that has it no more."""

    names: str
    """Spellings, separated by spaces."""
    kind: Kind = "str"
    default: object = None
    choices: tuple[Any, ...] = ()
    many: bool = False
    required: bool = False
    optional: bool = False
    """May stand without a value, which is then the default."""
    since: str = "0.17.0"
    before: str | None = None
    unset: bool = False
    """Left out of the result when it is not given."""
    late_default: object = ...
    """The default of the later source tree where it differs."""
    source: str = ""

    @property
    def spellings(self) -> tuple[str, ...]:
        """All of its names."""
        return tuple(self.names.split())

    @property
    def field(self) -> str:
        """Name of its value in the parsed result."""
        return next(name for name in self.spellings if name.startswith("--")).lstrip("-").replace("-", "_")

    def of(self, version: str) -> bool:
        """Whether this release has it."""
        here = order(version)
        return order(self.since) <= here and (self.before is None or here < order(self.before))

    def value(self, generation: str) -> object:
        """Its default."""
        return self.late_default if generation == "late" and self.late_default is not ... else self.default


def rows_of(table: Iterable[Row], version: str) -> tuple[Row, ...]:
    """The rows that a release has."""
    return tuple(row for row in table if row.of(version))


class _Strict(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser(prog: str, table: Sequence[Row], generation: str = "early") -> argparse.ArgumentParser:
    """Accepts exactly these rows; everything else ends the program with exit code 2 and a message that names it."""
    made = _Strict(
        prog=prog,
        allow_abbrev=False,
        description="STAND-IN: checks its arguments and builds nothing.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for row in table:
        given: dict[str, Any] = {"dest": row.field, "help": row.source.replace("%", "%%") or "see the table"}
        given["default"] = argparse.SUPPRESS if row.unset else row.value(generation)
        if row.kind == "flag":
            made.add_argument(*row.spellings, action="store_true", **given)
            continue
        given["type"] = {"int": int, "float": float}.get(row.kind, str)
        given["choices"] = ONOFF if row.kind == "onoff" else row.choices or None
        if row.many:
            given["nargs"] = "+"
        if row.optional:
            given |= {"nargs": "?", "const": row.default}
        made.add_argument(*row.spellings, required=row.required, **given)
    return made
