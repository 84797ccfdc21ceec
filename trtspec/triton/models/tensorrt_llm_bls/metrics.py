"""Prometheus metrics of the pipeline, on Triton's own /metrics page.

A change of a metric is a message to the server that is answered while this process holds the GIL (some 0.1 ms in
Triton 2.51). So requests only add up numbers here, and one thread publishes what has changed a few times a second.
Nothing in here raises into a request, and nothing of a request becomes a label unless it is known beforehand.

Every process has series of its own (label `process`). Triton counts references to a series per process: where two
have the same labels (two instances; or the new and the old one while a model is reloaded), the first to end would
free the series that the other goes on writing to, inside the server.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

PERIOD = 0.5
"""Seconds from a change until it is published."""
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Upper ends in seconds; a last one has none."""
OTHER = "other"
"""Stands for every label value that is not known beforehand."""
MAX_TASKS = 64
MAX_DRAFT_LEN = 64

MODES = ("speculative", "target-only")
REASONS = ("requested", "policy", "guard", "no-draft-model", "draft-failed", "draft-slow", "inputs", "load")
"""Why a request goes on without a draft."""
DECISIONS = (*REASONS, "engine", "adaptive")
"""What held the draft length down."""
FINISHES = ("end_id", "stop_words", "length", "cancelled", "refused", "overloaded", "deadline", "failed")
"""How a request ended: the finish reason of an answer, or why there is none."""

COUNTERS = {
    "trtspec_requests_total": "Requests that have ended, by how they were answered and why they ended",
    "trtspec_rounds_total": "Rounds: a draft call and the verify call that judges it",
    "trtspec_drafted_tokens_total": "Draft tokens sent to the target",
    "trtspec_tested_tokens_total": "Draft tokens that were judged: those up to the first rejection",
    "trtspec_accepted_tokens_total": "Draft tokens that stay in an answer",
    "trtspec_emitted_tokens_total": "Tokens that rounds have added to answers, the target's own included",
    "trtspec_output_tokens_total": "Tokens of all answers, with or without speculation",
    "trtspec_fallbacks_total": "Requests that went on with the target alone, by reason",
    "trtspec_policy_decisions_total": "Draft lengths decided, by what held them down",
    "trtspec_round_seconds_bucket": "Rounds that took at most le seconds",
    "trtspec_round_seconds_sum": "Seconds that rounds have taken",
    "trtspec_round_seconds_count": "Rounds that were timed",
}
GAUGES = {
    "trtspec_requests_in_flight": "Requests being answered now",
    "trtspec_requests_waiting": "Requests waiting for a place",
    "trtspec_guard_open": "1 while the guard has switched speculation off for the task",
}
FAMILIES = COUNTERS | GAUGES

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]


class RoundDone(Protocol):
    """One round, as rounds.py reports it."""

    @property
    def drafted(self) -> int: ...
    @property
    def tested(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def emitted(self) -> int: ...
    @property
    def seconds(self) -> float: ...


class Metrics:
    """The families of one model, and the thread that publishes them."""

    def __init__(self, pb: Any, model_name: str, version: str) -> None:
        self._tally = Tally()
        self._tasks = frozenset({""})
        self._page = Page(pb, {"model": model_name, "version": version, "process": str(os.getpid())})
        self._publishing = threading.Lock()
        self._changed = threading.Condition()
        self._dirty = False
        self._closed = False
        self.know(())
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def know(self, tasks: Iterable[str]) -> None:
        """Tasks that get series of their own, in addition to those known already; the others are one, `other`."""
        new = [task for task in tasks if task not in self._tasks]
        self._tasks |= frozenset(new[: max(0, MAX_TASKS - len(self._tasks))])
        self._tally.start(series for task in (*self._tasks, OTHER) for series in _from_zero(task))
        self._wake()

    def round(self, task: str | None, done: RoundDone) -> None:
        """A speculative round has ended."""
        label = self._task(task)
        counts = (1, done.drafted, done.tested, done.accepted, done.emitted)
        self._tally.add([((name, label), count) for name, count in zip(_OF_A_ROUND, counts, strict=True)])
        self._tally.time(label, done.seconds)
        self._wake()

    def request(self, task: str | None, mode: str, finish: str, tokens: int = 0) -> None:
        """A request has ended; `tokens` is the length of its answer."""
        label = self._task(task)
        labels = (*label, ("mode", _mode(mode)), ("finish", _known(finish, FINISHES)))
        self._tally.add([(("trtspec_requests_total", labels), 1), (("trtspec_output_tokens_total", label), tokens)])
        self._wake()

    def fallback(self, task: str | None, reason: str) -> None:
        """A request goes on with the target alone."""
        labels = (*self._task(task), ("reason", _known(reason, REASONS)))
        self._tally.add([(("trtspec_fallbacks_total", labels), 1)])
        self._wake()

    def decision(self, task: str | None, reason: str, draft_len: int) -> None:
        """A draft length was decided."""
        length = str(min(max(draft_len, 0), MAX_DRAFT_LEN))
        labels = (*self._task(task), ("reason", _known(reason, DECISIONS)), ("draft_len", length))
        self._tally.add([(("trtspec_policy_decisions_total", labels), 1)])
        self._wake()

    def in_flight(self, count: int) -> None:
        """Requests being answered now."""
        self._tally.set(("trtspec_requests_in_flight", ()), count)
        self._wake()

    def waiting(self, count: int) -> None:
        """Requests waiting for a place."""
        self._tally.set(("trtspec_requests_waiting", ()), count)
        self._wake()

    def guard(self, task: str | None, open: bool) -> None:
        """The guard has switched speculation off for a task (open), or on again."""
        self._tally.set(("trtspec_guard_open", self._task(task)), int(open))
        self._wake()

    def flush(self) -> None:
        """Publish now."""
        with self._publishing:
            self._page.publish(self._tally.take())

    def close(self) -> None:
        """Publish, end the thread and take this model's series off the page."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self.flush()
        with self._publishing:
            self._page.close()

    def _task(self, task: str | None) -> Labels:
        return (("task", task if task in self._tasks else OTHER if task else ""),)

    def _wake(self) -> None:
        if not self._dirty:
            with self._changed:
                self._dirty = True
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._dirty)
                self._changed.wait_for(lambda: self._closed, timeout=PERIOD)
                if self._closed:
                    return
                self._dirty = False
            self.flush()


class Tally:
    """What has happened since the last look, by series."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Series, float] = {}
        self._rounds: dict[Labels, list[int]] = {}
        self._levels: dict[Series, float] = {}

    def start(self, series: Iterable[Series]) -> None:
        """Show them, at 0 if nothing has happened yet: Prometheus sees no increase in a series that begins at 1."""
        self.add([(one, 0) for one in series])

    def add(self, counts: Iterable[tuple[Series, float]]) -> None:
        """Something has happened so many times."""
        with self._lock:
            for series, count in counts:
                self._counts[series] = self._counts.get(series, 0) + count

    def time(self, label: Labels, seconds: float) -> None:
        """A round took so long."""
        series = ("trtspec_round_seconds_sum", label)
        with self._lock:
            self._rounds.setdefault(label, [0] * (len(BUCKETS) + 1))[bisect_left(BUCKETS, seconds)] += 1
            self._counts[series] = self._counts.get(series, 0) + seconds

    def set(self, series: Series, level: float) -> None:
        """So much it is now."""
        with self._lock:
            self._levels[series] = level

    def take(self) -> tuple[dict[Series, float], dict[Series, float]]:
        """Increases of counters since the last call, and levels of gauges that were set since."""
        with self._lock:
            counts, self._counts = self._counts, {}
            rounds, self._rounds = self._rounds, {}
            levels, self._levels = self._levels, {}
        for label, found in rounds.items():
            counts.update(_cumulated(label, found))
        return counts, levels


class Page:
    """This model's series on the server's metrics page."""

    def __init__(self, pb: Any, labels: dict[str, str]) -> None:
        self._pb = pb
        self._labels = labels
        self._families: dict[str, Any] = {}
        self._series: dict[Series, Any] = {}
        self._broken = not hasattr(pb, "MetricFamily")

    def publish(self, changes: tuple[dict[Series, float], dict[Series, float]]) -> None:
        """Send what has changed. After an error (a server without metrics, say) no more is tried."""
        counts, levels = changes
        if self._broken:
            return
        try:
            for series, count in counts.items():
                found = self._of(series)
                if count:
                    found.increment(float(count))
            for series, level in levels.items():
                self._of(series).set(float(level))
        except Exception as error:
            self._broken = True
            self._pb.Logger.log_warn(f"no metrics from now on: {str(error).strip().splitlines()[0]}")

    def close(self) -> None:
        """Take off what this process has added, the series before their families."""
        self._series.clear()
        self._families.clear()
        self._broken = True

    def _of(self, series: Series) -> Any:
        time.sleep(0)  # let a request have the GIL
        if series not in self._series:
            self._series[series] = self._new(*series)
        return self._series[series]

    def _new(self, name: str, labels: Labels) -> Any:
        if name not in self._families:
            kind = self._pb.MetricFamily.COUNTER if name in COUNTERS else self._pb.MetricFamily.GAUGE
            self._families[name] = self._pb.MetricFamily(name=name, description=FAMILIES[name], kind=kind)
        return self._families[name].Metric(labels=self._labels | dict(labels))


_OF_A_ROUND = (
    "trtspec_rounds_total",
    "trtspec_drafted_tokens_total",
    "trtspec_tested_tokens_total",
    "trtspec_accepted_tokens_total",
    "trtspec_emitted_tokens_total",
)


def _from_zero(task: str) -> Iterator[Series]:
    label = (("task", task),)
    yield from ((name, label) for name in (*_OF_A_ROUND, "trtspec_output_tokens_total"))
    yield from (("trtspec_fallbacks_total", (*label, ("reason", reason))) for reason in REASONS)


def _cumulated(label: Labels, counts: list[int]) -> Iterator[tuple[Series, float]]:
    """The way Prometheus counts a histogram: a bucket holds all rounds that took at most so long."""
    total = 0
    for end, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
        total += count
        yield ("trtspec_round_seconds_bucket", (*label, ("le", end))), total
    yield ("trtspec_round_seconds_count", label), total


def _known(value: str, values: tuple[str, ...]) -> str:
    return value if value in values else OTHER


def _mode(mode: str) -> str:
    kind, _, reason = mode.partition(":")
    return f"{kind}:{_known(reason, REASONS)}" if kind == "target-only" else _known(kind, MODES)
