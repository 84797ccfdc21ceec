"""The server's own counters before and after a measurement, and what they say about its answers.

Counters are read as differences of two scrapes, series by series, then summed over every label. A series that fell or
vanished was started anew; more requests than were sent are somebody else's. In both cases nothing follows, and it is
said so. Otherwise the counters must agree with the answers to the last token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from trtspec.errors import ServingError
from trtspec.measurement.endpoints import BLS, Endpoint
from trtspec.measurement.parts import CounterCheck, CounterRow, MemoryRow
from trtspec.measurement.records import Answer, Mode, total
from trtspec.triton import health

Metrics = dict[str, dict[tuple[tuple[str, str], ...], float]]
"""Family → labels → value, as :func:`trtspec.triton.health.metrics` gives it."""
OURS = {
    "rounds": "trtspec_rounds_total",
    "drafted": "trtspec_drafted_tokens_total",
    "tested": "trtspec_tested_tokens_total",
    "accepted": "trtspec_accepted_tokens_total",
    "emitted": "trtspec_emitted_tokens_total",
}
REQUESTS = "nv_inference_request_success"
SETTLE = 1.2
"""Seconds within which the pipeline publishes what it has counted."""
PATIENCE = 5.0
"""Seconds in which counters that are published now and then must have caught up with the last answer."""


def fell(before: Metrics, after: Metrics, families: Iterable[str]) -> list[str]:
    """Families of which a series is lower than it was, or gone: a counter does neither while its server lives."""
    return [
        family
        for family in families
        if any(after.get(family, {}).get(labels, -1.0) < value for labels, value in before.get(family, {}).items())
    ]


def risen(before: Metrics, after: Metrics, family: str, **labels: str) -> float | None:
    """By how much a family rose, over all series with these labels; None where the server has no such family."""
    old = before.get(family, {})
    own = {key: value for key, value in after.get(family, {}).items() if labels.items() <= dict(key).items()}
    return sum(value - old.get(key, 0.0) for key, value in own.items()) if own else None


@dataclass
class CounterWatch:
    """A first scrape, to be compared with a second."""

    read: Callable[[], Metrics]
    before: Metrics
    latest: Metrics = field(default_factory=dict)
    """The last page that could be read."""

    @classmethod
    def begin(cls, host: str, port: int) -> CounterWatch:
        """Scrape the metrics port now; ServingError where that is not possible."""
        read = partial(health.metrics, host, port)
        before = settled(read, read())
        return cls(read, before, before)

    def check(self, answers: Sequence[Answer], endpoints: Mapping[Mode, Endpoint]) -> CounterCheck:
        """Compare with every answer that was asked for since, those of the warm-up included."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.latest = self.read()
            except ServingError as error:
                return CounterCheck(outcome="disturbed", reason=f"the counters could not be read again: {error}")
            found = compare(self.before, self.latest, answers, endpoints)
            behind = found.outcome == "disagree" and all(row.server <= row.answers for row in found.rows)
            if not behind or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


def settled(read: Callable[[], Metrics], page: Metrics) -> Metrics:
    """The page once the counters of requests that have just ended are all in it; at once for an unused server."""
    deadline = time.monotonic() + PATIENCE
    while any(value for family in OURS.values() for value in page.get(family, {}).values()):
        time.sleep(SETTLE)
        before, page = page, read()
        if all(page.get(f) == before.get(f) for f in OURS.values()) or time.monotonic() > deadline:
            break
    return page


def compare(
    before: Metrics, after: Metrics, answers: Sequence[Answer], endpoints: Mapping[Mode, Endpoint]
) -> CounterCheck:
    """What two scrapes say about the answers between them."""
    requests = [row for mode, end in endpoints.items() if (row := _requests(before, after, answers, mode, end))]
    tokens = _token_rows(before, after, answers, endpoints)
    rows = (*requests, *tokens)
    gone = fell(before, after, [REQUESTS, *OURS.values()])
    if gone:
        reason = f"{', '.join(gone)} fell: the server or a model was started anew during the measurement"
        return CounterCheck(outcome="disturbed", reason=reason, rows=rows)
    if not rows:
        return CounterCheck(outcome="not-measured", reason="the server has none of the counters that could be compared")
    foreign = [row for row in requests if row.server > row.answers]
    if foreign:
        extra = f"{foreign[0].server - foreign[0].answers:g} {foreign[0].name} are not ours"
        return CounterCheck(outcome="disturbed", reason=f"{extra}: somebody else used the server", rows=rows)
    failed = sum(not a.usable for a in answers)
    wrong = [row for row in rows if row.server != row.answers and not (failed and row.server > row.answers)]
    if wrong:
        row = wrong[0]
        reason = f"the server counted {row.server:g} {row.name}, its answers hold {row.answers:g}"
        return CounterCheck(outcome="disagree", reason=reason, rows=rows)
    reason = "counters and answers agree" if tokens else "requests agree; the server counts no rounds"
    if failed:
        reason += f", but for {failed} requests that failed on the way"
    return CounterCheck(outcome="agree", reason=reason, rows=rows)


def _requests(
    before: Metrics, after: Metrics, answers: Sequence[Answer], mode: Mode, endpoint: Endpoint
) -> CounterRow | None:
    """Triton's own count of a model's requests. One that never arrived, or was cancelled, is in neither."""
    server = risen(before, after, REQUESTS, model=endpoint.model)
    if server is None:
        return None
    ours = [a for a in answers if a.mode == mode]
    lost = sum(not a.usable for a in ours)
    known = max(min(server, float(len(ours))), float(len(ours) - lost))
    return CounterRow(name=f"requests of {endpoint.model}", server=server, answers=known)


def _token_rows(
    before: Metrics, after: Metrics, answers: Sequence[Answer], endpoints: Mapping[Mode, Endpoint]
) -> list[CounterRow]:
    spec = endpoints.get("speculative")
    counted = total(a.histogram for a in answers)
    if spec is None or spec.model != BLS or counted is None:
        return []
    found = []
    for name, family in OURS.items():
        server = risen(before, after, family)
        if server is not None:
            found.append(CounterRow(name=name, server=server, answers=float(getattr(counted, name))))
    return found


def memory(metrics: Metrics) -> MemoryRow | None:
    """The fullest GPU, or the host where the server knows of none."""
    for kind, stem in (("gpu", "nv_gpu_memory"), ("host", "nv_cpu_memory")):
        used = metrics.get(f"{stem}_used_bytes", {})
        both = [
            (used[k] / whole, k, whole)
            for k, whole in metrics.get(f"{stem}_total_bytes", {}).items()
            if whole > 0 and k in used
        ]
        if both:
            _, labels, whole = max(both)
            name = dict(labels).get("gpu_uuid")
            return MemoryRow(
                device=f"gpu {name}" if name else kind, total_bytes=int(whole), used_bytes=int(used[labels])
            )
    return None
