"""The serving policy: how many draft tokens for which task and at which load. Imports nothing of Triton.

    {"version": 1,
     "default": {"draft_len": 5},
     "tasks": {"code": {"draft_len": 6}, "legal": {"draft_len": 0, "reason": "α 0.48 < 0.55"}},
     "by_concurrency": [[1, 8], [8, 1]]}

A task's entry replaces the default. `by_concurrency` holds [requests in flight, draft_len] pairs; the last one that
is reached sets an upper limit.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1
LABEL_BYTES = 256
"""Of a task's name, as in limits.py."""
_KEYS = {"version", "default", "tasks", "by_concurrency"}


@dataclass(frozen=True)
class Policy:
    """A checked policy document."""

    default: int
    tasks: Mapping[str, int]
    by_concurrency: tuple[tuple[int, int], ...]

    def draft_len(self, task: str | None, in_flight: int) -> int:
        """Most draft tokens per round for this task while `in_flight` requests are here, this one included."""
        return self.decide(task, in_flight)[0]

    def decide(self, task: str | None, in_flight: int) -> tuple[int, str]:
        """The same with what decided: `policy` (the task's entry or the default) or `load` (by_concurrency)."""
        length = self.tasks.get(task, self.default) if task is not None else self.default
        reached = [limit for requests, limit in self.by_concurrency if in_flight >= requests]
        return (reached[-1], "load") if reached and reached[-1] < length else (length, "policy")


def parse_policy(document: Any) -> Policy:
    """Check a document; ValueError says in one line what is wrong with it."""
    if not isinstance(document, dict):
        raise ValueError("the policy is not a JSON object")
    unknown = sorted(set(document) - _KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}")
    if document.get("version") != VERSION:
        raise ValueError(f"version is {document.get('version')!r}; this server reads version {VERSION}")
    tasks = document.get("tasks", {})
    if not isinstance(tasks, dict):
        raise ValueError("tasks is not an object of task names")
    return Policy(
        default=_draft_len(document.get("default"), "default"),
        tasks={_name(name): _draft_len(entry, f"tasks.{name}") for name, entry in tasks.items()},
        by_concurrency=_steps(document.get("by_concurrency", [])),
    )


def _name(task: str) -> str:
    """No request can have another name, and Triton takes none for a metric's label that is no text."""
    if len(task.encode("utf-8", "surrogatepass")) > LABEL_BYTES or any("\ud800" <= c <= "\udfff" for c in task):
        raise ValueError(f"tasks holds a name that is not UTF-8 text of at most {LABEL_BYTES} bytes: {task[:40]!a}")
    return task


def _draft_len(entry: Any, where: str) -> int:
    if not isinstance(entry, dict) or set(entry) - {"draft_len", "reason"}:
        raise ValueError(f"{where} is not an object with draft_len and, if wanted, reason")
    return _count(entry.get("draft_len"), f"{where}.draft_len")


def _steps(entries: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(entries, list) or any(not isinstance(e, list) or len(e) != 2 for e in entries):
        raise ValueError("by_concurrency is not a list of [requests in flight, draft_len] pairs")
    steps = tuple((_count(n, "by_concurrency"), _count(k, "by_concurrency")) for n, k in entries)
    if any(later[0] <= earlier[0] for earlier, later in itertools.pairwise(steps)):
        raise ValueError("by_concurrency is not sorted by requests in flight")
    return steps


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{where} holds {value!r}; it must be a whole number of at least 0")
    return value


class PolicyFile:
    """A policy that follows its file. What cannot be read leaves the last good policy in force.

    Write the file beside and rename it. One that is read half-written is read again as soon as it changes, and once
    more at the next request, because its last change may carry the same time and size.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] | None = None
        self._problem = ""
        self._read()

    def refresh(self) -> str | None:
        """Read the file again if it has changed: None if not, else what is wrong with it (empty: nothing)."""
        with self._lock:
            try:
                stamp = self._stat()
                if stamp == self._stamp and not self._problem:
                    return None
                self._read()
            except (OSError, ValueError, RecursionError) as error:
                return self._failed(error)
            self._problem = ""
            return ""

    def _failed(self, error: Exception) -> str | None:
        """Said once for each problem."""
        reason = error.strerror if isinstance(error, OSError) else str(error) or type(error).__name__
        said, self._problem = self._problem, f"{self._path.name} keeps its last good content: {reason}"
        return None if said == self._problem else self._problem

    def _stat(self) -> tuple[int, ...]:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _read(self) -> None:
        # The time of before: what changes while we read is read again.
        stamp = self._stat()
        self.policy = parse_policy(json.loads(self._path.read_text(encoding="utf-8")))
        self._stamp = stamp
