"""Why a build failed, when its log says something that is known: causes.yaml, read once."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("causes.yaml")
UNNAMED = "the log names it"


@dataclass(frozen=True)
class Cause:
    """One known failure. `sources` are the public reports, or the software whose text it is."""

    name: str
    texts: tuple[re.Pattern[str], ...]
    signals: tuple[int, ...]
    cause: str
    fix: str
    sources: tuple[str, ...]

    def found_in(self, lines: Iterable[str]) -> str | None:
        """The explanation, with what the log names filled in; None where no line matches."""
        for line in lines:
            for text in self.texts:
                match = text.search(line)
                if match:
                    return self._said(match.groupdict())
        return None

    def _said(self, named: dict[str, str | None]) -> str:
        words = defaultdict(lambda: UNNAMED, {name: value.strip() for name, value in named.items() if value})
        return self.cause.format_map(words)


@dataclass(frozen=True)
class Diagnosis:
    """A cause as it was found."""

    cause: Cause
    said: str


@functools.cache
def causes() -> tuple[Cause, ...]:
    """The table, in its order."""
    rows: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return tuple(
        Cause(
            name=row["name"],
            texts=tuple(re.compile(text) for text in row["texts"]),
            signals=tuple(row.get("signals", ())),
            cause=row["cause"],
            fix=" ".join(row["fix"].split()),
            sources=tuple(map(str, row["sources"])),
        )
        for row in rows
    )


def diagnose(lines: Iterable[str], return_code: int = 1) -> Diagnosis | None:
    """The first known cause in the lines of a log, else the one that explains the signal; None where nothing is known.

    `return_code` is negative for a signal; 128 + n, as shells and schedulers say it, counts alike.
    """
    read = list(lines)
    for cause in causes():
        said = cause.found_in(read)
        if said is not None:
            return Diagnosis(cause, said)
    signal = -return_code if return_code < 0 else return_code - 128
    for cause in causes():
        if signal in cause.signals:
            return Diagnosis(cause, cause.cause)
    return None
