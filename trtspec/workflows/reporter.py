"""How a running workflow speaks to whoever watches: a terminal, a CI log, or nobody."""

from __future__ import annotations

from typing import Protocol

from trtspec.store import Outcome


class Reporter(Protocol):
    """The seam between workflows and the screen. Calls may come from several threads."""

    def note(self, text: str) -> None:
        """One line of plain news."""

    def progress(self, title: str, done: int, total: int) -> None:
        """`done` of `total` (bytes, requests) of the work named `title`; equal numbers end it."""

    def finished(self, outcome: Outcome) -> None:
        """A stage was built or reused."""


class Silent:
    """A reporter that says nothing: the default of functions called from code."""

    def note(self, text: str) -> None:
        """Ignored."""

    def progress(self, title: str, done: int, total: int) -> None:
        """Ignored."""

    def finished(self, outcome: Outcome) -> None:
        """Ignored."""
