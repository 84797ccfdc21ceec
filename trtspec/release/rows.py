"""A row of the gate table: one rule applied to one subject, and the words it is told in."""

from __future__ import annotations

import math
from typing import Literal

from trtspec.analysis.intervals import Interval
from trtspec.measurement.result import Estimate, Record

Outcome = Literal["pass", "fail", "undecided", "invalid", "not measured", "off", "not judged"]
Verdict = Literal["pass", "fail", "undecided", "invalid"]


class GateRow(Record):
    """One rule applied to one subject."""

    rule: str = ""
    """Stable id, such as `release.alpha`; docs/gates.md has a section for each."""
    name: str
    subject: str
    """A domain, or what the rule is about."""
    reads: str = ""
    """The figure that is judged."""
    measured: float | None
    """Null where it was not measured."""
    low: float | None
    high: float | None
    level: float | None = None
    """Confidence of low to high. Where the measurement looked at its figures to stop early, more than 95 %."""
    limit: float | None
    outcome: Outcome
    reason: str


def make_row(
    rule: str,
    name: str,
    subject: str,
    outcome: Outcome,
    reason: str,
    found: Interval | Estimate | None = None,
    limit: float | None = None,
    *,
    reads: str = "",
    level: float | None = None,
) -> GateRow:
    """A row; infinite ends are written as null."""
    return GateRow(
        rule=rule,
        name=name,
        subject=subject,
        reads=reads,
        measured=None if found is None else found.point,
        low=None if found is None else _finite(found.low),
        high=None if found is None else _finite(found.high),
        level=None if found is None else level,
        limit=limit,
        outcome=outcome,
        reason=reason,
    )


def interval_text(found: Estimate | Interval | None, digits: int = 2) -> str:
    """`0.70 [0.64, 0.75]`, or `not measured`."""
    if found is None:
        return "not measured"
    low, high = (_finite(end) for end in (found.low, found.high))
    if low is None and high is None:
        ends = "no interval"
    else:
        ends = ", ".join("open" if end is None else f"{end:.{digits}f}" for end in (low, high))
    return f"{found.point:.{digits}f} [{ends}]"


def against(found: Estimate | Interval | None, limit: float, digits: int = 2) -> str:
    """The interval in words, with as many digits as show on which side of the limit its ends lie."""
    ends = [] if found is None else [end for end in (_finite(found.low), _finite(found.high)) if end is not None]
    hidden = any(round(end, digits) == round(limit, digits) != end for end in ends)
    return interval_text(found, digits + 2 if hidden else digits)


def floor_outcome(found: Interval | None, floor: float) -> Literal["pass", "fail", "undecided"]:
    """Where the whole interval lies; one that touches the floor is not below it."""
    if found is None:
        return "undecided"
    if found.low >= floor:
        return "pass"
    return "fail" if found.high < floor else "undecided"


def ceiling_outcome(found: Interval, ceiling: float) -> Literal["pass", "fail", "undecided"]:
    """The same for a limit from above."""
    if found.high <= ceiling:
        return "pass"
    return "fail" if found.low > ceiling else "undecided"


def _finite(end: float | None) -> float | None:
    return end if end is not None and math.isfinite(end) else None
