"""Every error trtspec raises, as one tree branched by who must act.

    TrtspecError
    ├── ConfigError        exit 2  the YAML file, a flag or an environment variable is wrong: the user edits it
    ├── MissingError       exit 3  the machine lacks a tool, package, version, GPU or free port: install one
    ├── CheckFailed        exit 1  a check or a gate says no: choose another pair, or change what was measured
    ├── BuildError         exit 4  convert, quantize or an engine build failed: read its log
    │   └── ModelFileError exit 4  a model folder is broken or unsupported (`check` reports it as a finding, exit 1)
    ├── ServingError       exit 5  the server or a client call failed: read the server's log
    └── EvidenceError      exit 6  the measurement is invalid or cannot decide: measure more, or measure rightly

Each error says what went wrong, where, what was found, what was expected and how to fix it. Role, stage and
log path are attached on the way out with :func:`context`, so no call site needs to know them.
Exit code 0 is success, 130 an interrupt (Ctrl-C), 143 SIGTERM, and 70 a fault of trtspec itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar


class TrtspecError(Exception):
    """Root of the tree. `exit_code` is what the command line returns for it."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | Path | None = None,
        found: object = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.found = None if found is None else str(found)
        self.expected = expected
        self.fix = fix
        self.context: dict[str, str] = {}
        super().__init__(what)

    def __str__(self) -> str:
        """One line: [context] where: what (found …, expected …); fix."""
        stages = " ".join(v for k, v in self.context.items() if k != "log")
        head = "".join((f"[{stages}] " if stages else "", f"{self.where}: " if self.where else "", self.what))
        facts = [
            f"{name} {value}"
            for name, value in (("found", self.found), ("expected", self.expected))
            if value is not None
        ]
        line = head + (f" ({', '.join(facts)})" if facts else "")
        line += f"; {self.fix}" if self.fix else ""
        return line + (f" [log: {self.context['log']}]" if "log" in self.context else "")

    def as_dict(self) -> dict[str, object]:
        """The same facts for `--json`."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "found": self.found,
            "expected": self.expected,
            "fix": self.fix,
            "context": self.context,
            "exit_code": self.exit_code,
        }


class ConfigError(TrtspecError):
    """Bad usage or configuration."""

    exit_code = 2


class MissingError(TrtspecError):
    """The environment lacks a tool, a package, a version, a GPU or a port."""

    exit_code = 3


class CheckFailed(TrtspecError):
    """A check or a gate says no."""

    exit_code = 1


class BuildError(TrtspecError):
    """Convert, quantize or an engine build failed."""

    exit_code = 4


class ModelFileError(BuildError):
    """A model folder is broken, incomplete or not supported."""


class ServingError(TrtspecError):
    """The server or a client call failed."""

    exit_code = 5


class EvidenceError(TrtspecError):
    """The evidence is invalid or undecided."""

    exit_code = 6


@contextmanager
def context(**facts: str | Path) -> Iterator[None]:
    """Attach facts (role, stage, log) to any :class:`TrtspecError` that passes through; inner facts win."""
    try:
        yield
    except TrtspecError as error:
        error.context = {name: str(value) for name, value in facts.items()} | error.context
        raise
