"""Rules on the quality of answers: a floor, and no drop against the target alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from scipy.special import ndtri

from trtspec.analysis.intervals import Interval, ratio_interval
from trtspec.analysis.sequential import drop_verdict
from trtspec.config.gates import Gates
from trtspec.measurement.result import QualityRow, ResultDocument
from trtspec.release.rows import GateRow, Outcome, against, floor_outcome, make_row

NAME = "quality"
_LEVEL = 0.95


def quality_rows(result: ResultDocument, gates: Gates) -> Iterator[GateRow]:
    """For each check: its floor, its drop, and what the command said. Missing where a floor is set: not measured."""
    if gates.min_quality is not None and not result.quality:
        reason = "gates.min_quality is set, and validation.quality checks nothing"
        yield make_row("quality.floor", NAME, "release", "not measured", reason, None, gates.min_quality)
    for row in result.quality:
        subject = row.domain or "all domains"
        if row.says_no:
            reason = f"`{row.check}` says no (exit 1)"
            yield make_row("quality.command", NAME, subject, "fail", reason)
        yield _floor(row, subject, gates.min_quality)
        if row.target_only is not None and row.speculative is not None:
            yield _drop(row, subject, gates.max_quality_drop)


def _floor(row: QualityRow, subject: str, floor: float | None) -> GateRow:
    reads = "share of speculative answers that are right"
    if row.speculative is None:
        outcome: Outcome = "not judged" if floor is None else "not measured"
        return make_row("quality.floor", NAME, subject, outcome, f"`{row.check}` gave no share", None, floor)
    right = round(row.speculative * row.n)
    found = ratio_interval([1.0] * right + [0.0] * (row.n - right), [1.0] * row.n)
    told = f"{row.speculative:.3f} of {row.n} answers right by {row.check}"
    if floor is None or found is None:
        reason = f"gates.min_quality is unset; {told}"
        return make_row("quality.floor", NAME, subject, "not judged", reason, found, None, reads=reads, level=_LEVEL)
    outcome = floor_outcome(found, floor)
    reason = f"{told}: {against(found, floor)} against {floor:g}"
    return make_row("quality.floor", NAME, subject, outcome, reason, found, floor, reads=reads, level=_LEVEL)


def _drop(row: QualityRow, subject: str, tolerance: float | None) -> GateRow:
    """Answers are paired: only those that are right in one mode alone speak (McNemar 1947)."""
    reads = "share right of the target alone less that of speculation"
    fell = (row.target_only or 0.0) - (row.speculative or 0.0)
    told = f"right {row.target_only:.3f} without and {row.speculative:.3f} with speculation"
    if row.only_target_only is None or row.only_speculative is None:
        found = Interval(fell, fell, fell, row.n)
        told += ", by the command's own figures"
    else:
        lost, won, n = row.only_target_only, row.only_speculative, row.n
        # Agresti and Min 2005: half a prompt more in each cell, so that no change is not certainty.
        spread = math.sqrt(max(0.0, (lost + won + 1) - (lost - won) ** 2 / (n + 2))) / (n + 2)
        half = float(ndtri((1 + _LEVEL) / 2)) * spread
        found = Interval(fell - half, fell + half, fell, n)
    if tolerance is None:
        return make_row("quality.drop", NAME, subject, "not judged", told, found, None, reads=reads, level=_LEVEL)
    outcome = drop_verdict(found, tolerance)
    why = {
        "pass": f"a drop of {tolerance:g} is ruled out",
        "fail": f"speculation answers worse, and a drop of {tolerance:g} is not ruled out",
        "undecided": f"too few prompts with a reference to rule out a drop of {tolerance:g}",
    }[outcome]
    return make_row(
        "quality.drop", NAME, subject, outcome, f"{told}: {why}", found, tolerance, reads=reads, level=_LEVEL
    )
