"""What people see: progress on a terminal, plain lines in CI, nothing on stdout when a document goes there."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from trtspec.store import Outcome

_CI_WIDTH = 110  # a log has no width of its own; narrower would fold the tables
_PLAIN_INTERVAL = 10.0  # seconds between progress lines of one task in a log


def console(as_json: bool = False) -> Console:
    """Console for people: stdout, or stderr when stdout carries the document."""
    stream = sys.stderr if as_json else sys.stdout
    known = stream.isatty() or "COLUMNS" in os.environ
    return Console(file=stream, width=None if known else _CI_WIDTH, highlight=False)


def print_json(document: object) -> None:
    """The one document of `--json`."""
    print(json.dumps(document, indent=1, default=str, ensure_ascii=False), flush=True)  # `serve` goes on running


def tell_warnings(out: Console, warnings: Sequence[str]) -> None:
    """A line each."""
    for line in warnings:
        out.print(f"warning: {line}", markup=False, soft_wrap=True)


def tell_if_reused(out: Console, outcomes: Sequence[Outcome]) -> None:
    """Say so when there was nothing to do."""
    if all(outcome.action == "reused" for outcome in outcomes):
        out.print("Nothing to do: everything is up to date.")


def stages_as_dicts(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """What was done, for the document of `--json`."""
    return [{"stage": o.stage.title, "action": o.action, "folder": o.stage.out, "key": o.stage.key} for o in outcomes]


class ConsoleReporter:
    """Prints stages and progress. A context manager, so that the progress bars are always taken down."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            console=out,
            transient=True,
            disable=not out.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> ConsoleReporter:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def note(self, text: str) -> None:
        """One plain line."""
        self._out.print(text, markup=False)

    def progress(self, title: str, done: int, total: int) -> None:
        """A bar on a terminal; a line every ten seconds elsewhere."""
        with self._lock:
            if not self._out.is_terminal:
                self._plain(title, done, total)
                return
            if title not in self._tasks:
                self._tasks[title] = self._bars.add_task(title, total=total)
            self._bars.update(self._tasks[title], completed=done, total=total, visible=done < total)

    def _plain(self, title: str, done: int, total: int) -> None:
        now = time.monotonic()
        last = self._said.setdefault(title, now)  # short work says nothing
        if now - last >= _PLAIN_INTERVAL:
            self._said[title] = now
            self._out.print(f"  {title}: {done} of {total}", markup=False)

    def finished(self, outcome: Outcome) -> None:
        """Built or reused, with the time it took and the folder."""
        if outcome.action == "reused":
            line = f"[dim]=[/dim] {outcome.stage.title:<26} up to date"
        else:
            why = f"  ({outcome.reason})" if outcome.reason else ""
            line = f"[green]✓[/green] {outcome.stage.title:<26} {outcome.seconds:6.1f} s{why}"
        self._out.print(line)
