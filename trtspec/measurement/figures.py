"""Acceptance over some answers: sums, intervals over prompts, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.analysis.intervals import Interval, ratio_interval
from trtspec.measurement.parts import Slo
from trtspec.measurement.records import MODES, Answer, Block, total
from trtspec.measurement.result import Estimate, Figures
from trtspec.measurement.timing import performance


def figures(answers: Sequence[Answer], blocks: Sequence[Block], slo: Slo) -> Figures:
    """Everything but the speed-up, which needs blocks of both modes side by side."""
    spec = [a for a in answers if a.usable and a.mode == "speculative"]
    per_prompt = [a.histogram for a in spec if a.histogram is not None]
    counted = total(per_prompt)
    speed = {mode: performance([a for a in answers if a.mode == mode], blocks, mode, slo) for mode in MODES}
    return Figures(
        histogram=None if counted is None else nested(counted),
        alpha=estimate(ratio_interval([h.accepted for h in per_prompt], [h.tested for h in per_prompt])),
        alpha_macro=_mean([h.alpha() for h in per_prompt]),
        draft_acceptance_rate_macro=_mean([h.draft_acceptance_rate() for h in per_prompt]),
        acceptance_length_macro=_mean([h.acceptance_length() for h in per_prompt]),
        per_position=tuple(counted.per_position()) if counted else None,
        position_intervals=_positions(per_prompt, counted) if counted else None,
        target_only=speed["target-only"],
        speculative=speed["speculative"],
        speedup=None,
        **(_of_rounds(counted) if counted else _of_totals(spec)),
    )


def _of_rounds(counted: RoundHistogram) -> dict[str, Any]:
    return {
        "draft_acceptance_rate": counted.draft_acceptance_rate(),
        "acceptance_length": counted.acceptance_length(),
    }


def _of_totals(answers: Sequence[Answer]) -> dict[str, Any]:
    """What sums alone say: a round emits a token of the target's own, so tested ≤ emitted, α ≥ accepted ÷ emitted."""
    told = [a for a in answers if a.totals_only and a.accepted is not None and a.drafted]
    if not told:
        return {"draft_acceptance_rate": None, "acceptance_length": None}
    accepted, drafted = sum(a.accepted or 0 for a in told), sum(a.drafted or 0 for a in told)
    rounds = [a.rounds for a in told]
    emitted = sum(a.output_tokens for a in told)
    return {
        # A server that says more were accepted than came is found out by the audit; here it must only not end it.
        "alpha_bound": estimate(
            ratio_interval([min(a.accepted or 0, a.output_tokens) for a in told], [a.output_tokens for a in told])
        ),
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_length": emitted / sum(r for r in rounds if r) if all(rounds) else None,
    }


def _positions(per_prompt: Sequence[RoundHistogram], counted: RoundHistogram) -> tuple[Estimate | None, ...]:
    """Intervals over prompts of the share of rounds that accepted position i, among those that tell.

    A round tells of position i where it drafted that far, and was not cut before it. The point is that of the figure
    itself, which also uses what cut rounds tell of earlier positions; the interval lies around it by as much.
    """
    found: list[Estimate | None] = []
    for i, point in enumerate(counted.per_position(), start=1):
        kept = [int((h.uncut + h.cut)[:, i:].sum()) for h in per_prompt]
        tell = [int(h.uncut[i:].sum() + h.cut[i:, i:].sum()) for h in per_prompt]
        own = ratio_interval(kept, tell)
        if own is None or point is None:
            found.append(None)
            continue
        shift = point - own.point
        low, high = max(0.0, own.low + shift), min(1.0, own.high + shift)
        found.append(Estimate(point=point, low=low, high=high, n=own.n))
    return tuple(found)


def estimate(found: Interval | None) -> Estimate | None:
    """As a part of the document."""
    return None if found is None else Estimate(point=found.point, low=found.low, high=found.high, n=found.n)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def nested(counted: RoundHistogram) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """As a part of the document."""
    rows = cast("list[list[list[Any]]]", counted.to_wire().tolist())
    return tuple(tuple(tuple(row) for row in half) for half in rows)
