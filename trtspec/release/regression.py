"""No worse than before? Drops against a baseline, judged by an interval that both sides' uncertainty is in.

A rule passes when a drop as large as the tolerance is ruled out, fails when it is not and "no worse" is ruled out, and
is undecided where neither is. Prompts that both runs asked are compared pair by pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trtspec.analysis.differences import difference_of
from trtspec.analysis.intervals import Interval, ratio_interval
from trtspec.analysis.paired import Pairs, independent_difference, paired_difference
from trtspec.analysis.sequential import drop_verdict
from trtspec.measurement.result import PromptRow, ResultDocument
from trtspec.measurement.summary import block_times
from trtspec.release.evidence import Evidence, acceptance_parts
from trtspec.release.rows import GateRow, Outcome, make_row

LEVEL = 0.99
"""Of the interval that rules a drop out. What is found worse must be so with 99 % over all rows of a rule together."""
ENOUGH_SHARED = 0.5
"""Share of this run's prompts that the baseline must have asked too, to be compared pair by pair."""


Part = Callable[[PromptRow], tuple[float, float] | None]
"""(numerator, denominator) of a prompt's figure; None where it has none."""


@dataclass(frozen=True)
class Drop:
    """How much a figure fell: (before - after). `low` holds over all rows of the rule together, `high` alone."""

    interval: Interval
    how: str


def regressions(evidence: Evidence, baseline: ResultDocument, *, twin: bool = False) -> Iterator[GateRow]:
    """Rows of α, acceptance length and speed-up over domains that keep speculation on either side; of α also in each.

    A twin is judged by α alone.
    """
    # A domain that this result switches off, and the baseline did not, has got worse if anything has.
    kept = {d.domain for d in (*evidence.kept, *Evidence(baseline, evidence.gates).kept)}
    here, there = ({d.domain for d in side.domains} for side in (evidence.result, baseline))
    names = [d.domain for d in evidence.result.domains if d.domain in kept & here & there]
    if not names:
        rule = "twin.alpha" if twin else "regression.alpha"
        yield make_row(rule, _NAMES[rule], "release", "not judged", "no domain of both results keeps speculation")
        return
    subjects = [("release", names)] if len(names) == 1 else [("release", names), *((n, [n]) for n in names)]
    for subject, domains in subjects:
        yield _alpha_row(evidence, baseline, subject, domains, len(subjects), twin=twin)
    if not twin:
        rows = (_length_row(evidence, baseline, names), _speed_row(evidence, baseline, names))
        yield from (row for row in rows if row.limit is not None or row.measured is not None)


_NAMES = {
    "regression.alpha": "α against baseline",
    "regression.length": "length against baseline",
    "regression.speedup": "speed-up against baseline",
    "twin.alpha": "α against unquantized twin",
}


def _alpha_row(
    evidence: Evidence, baseline: ResultDocument, subject: str, domains: Sequence[str], among: int, *, twin: bool
) -> GateRow:
    rule = "twin.alpha" if twin else "regression.alpha"
    tolerance = evidence.gates.max_twin_drop if twin else evidence.gates.max_alpha_drop
    now, then = _rows(evidence.result, domains), _rows(baseline, domains)
    bound = acceptance_parts(now)[1]
    drop = _drop(now, then, _bound_part if bound else _alpha_part, evidence, among)
    return _judged(rule, subject, drop, tolerance, "the least α can be" if bound else "α", evidence)


def _length_row(evidence: Evidence, baseline: ResultDocument, names: Sequence[str]) -> GateRow:
    now, then = _rows(evidence.result, names), _rows(baseline, names)
    drop = _drop(now, then, _length_part, evidence, 1)
    if drop is not None:
        emitted, rounds = (sum(column) for column in zip(*filter(None, map(_length_part, then)), strict=True))
        drop = _scaled(drop, rounds / emitted)
    return _judged("regression.length", "release", drop, evidence.gates.max_length_drop, "tokens per round", evidence)


def _speed_row(evidence: Evidence, baseline: ResultDocument, names: Sequence[str]) -> GateRow:
    """On the logarithm: a speed-up is a ratio."""
    level = evidence.level(LEVEL)
    sides = [_log_speed(result, names, level) for result in (evidence.result, baseline)]
    drop = None
    if sides[0] is not None and sides[1] is not None:
        fell = difference_of(sides[0], sides[1])  # log before - log after
        low, high, point = (1.0 - math.exp(-x) for x in (fell.low, fell.high, fell.point))
        drop = Drop(Interval(low, high, point, fell.n), f"{fell.n} blocks")
    tolerance = evidence.gates.max_speedup_drop
    return _judged("regression.speedup", "release", drop, tolerance, "the speed-up", evidence)


def _judged(
    rule: str, subject: str, drop: Drop | None, tolerance: float | None, what: str, evidence: Evidence
) -> GateRow:
    share = "" if rule.endswith("alpha") else ", as a share of the other's"
    reads = f"{what} of the other result less that of this one{share}; below 0 it rose"
    level = evidence.level(LEVEL)
    if drop is None:
        missing: Outcome = "not judged" if tolerance is None else "not measured"
        return make_row(
            rule, _NAMES[rule], subject, missing, "not measured on both sides", None, tolerance, reads=reads
        )
    fell = drop.interval
    words = f"drop of {what} {fell.point:+.3f} [{fell.low:+.3f}, {fell.high:+.3f}] ({drop.how})"
    if tolerance is None:
        return make_row(rule, _NAMES[rule], subject, "not judged", words, fell, None, reads=reads, level=level)
    outcome = drop_verdict(fell, tolerance)
    why = {
        "pass": f"a drop of {tolerance:g} is ruled out",
        "fail": f"it is worse for certain, and a drop of {tolerance:g} is not ruled out",
        "undecided": f"neither no drop nor one of {tolerance:g} is ruled out; more prompts decide",
    }[outcome]
    return make_row(rule, _NAMES[rule], subject, outcome, f"{words}: {why}", fell, tolerance, reads=reads, level=level)


def _drop(
    now: Sequence[PromptRow], then: Sequence[PromptRow], part: Part, evidence: Evidence, among: int
) -> Drop | None:
    """`high` at 99 %; `low` at a level that holds over `among` rows together (Bonferroni)."""
    here, there = _parts(now, part), _parts(then, part)
    shared = [key for key in here if key in there and not key.startswith(_NAMELESS)]
    pair = len(shared) >= max(3, ENOUGH_SHARED * len(here))
    sides = ([here[key] for key in shared], [there[key] for key in shared])
    if not pair:
        sides = (list(here.values()), list(there.values()))
    high, low = (
        _difference(*sides, evidence.level(level), pair=pair) for level in (LEVEL, 1.0 - (1.0 - LEVEL) / among)
    )
    if high is None or low is None:
        return None
    how = f"{high.n} prompts asked in both runs" if pair else f"{high.n} prompts, not the same on both sides"
    return Drop(Interval(low.low, high.high, high.point, high.n), how)


def _difference(now: Pairs, then: Pairs, level: float, *, pair: bool) -> Interval | None:
    """Before less after."""
    return (paired_difference if pair else independent_difference)(now, then, level=level)


_NAMELESS = "#"


def _parts(rows: Sequence[PromptRow], part: Part) -> dict[str, tuple[float, float]]:
    """By what was asked, and how often it was asked before; a row that does not say so has a key of its own."""
    found: dict[str, tuple[float, float]] = {}
    times: Counter[str] = Counter()
    for row in rows:
        name = row.sha256 or _NAMELESS
        times[name] += 1
        if (each := part(row)) is not None:
            found[f"{name} {times[name]}"] = each
    return found


def _alpha_part(row: PromptRow) -> tuple[float, float] | None:
    return (float(row.accepted), float(row.tested)) if row.accepted is not None and row.tested else None


def _bound_part(row: PromptRow) -> tuple[float, float] | None:
    return (float(row.accepted), float(row.emitted)) if row.accepted is not None and row.emitted else None


def _length_part(row: PromptRow) -> tuple[float, float] | None:
    return (float(row.emitted), float(row.rounds)) if row.emitted is not None and row.rounds else None


def _rows(result: ResultDocument, domains: Sequence[str]) -> list[PromptRow]:
    return [row for d in result.domains if d.domain in domains for row in d.rows]


def _scaled(drop: Drop, by: float) -> Drop:
    found = drop.interval
    return Drop(Interval(found.low * by, found.high * by, found.point * by, found.n), drop.how)


def _log_speed(result: ResultDocument, names: Sequence[str], level: float) -> Interval | None:
    plain, spec = block_times([d.figures for d in result.domains if d.domain in names])
    found = ratio_interval(plain, spec, level=level, bounds=None) if plain else None
    if found is None:
        return None
    return Interval(math.log(found.low), math.log(found.high), math.log(found.point), found.n)
