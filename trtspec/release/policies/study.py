"""The best K per domain and load, from one result or several that measured different K or loads.

What was measured decides. A K that was not measured is a proposal: it has an interval, and `measured` is null.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trtspec.analysis.prediction import crossing
from trtspec.errors import EvidenceError
from trtspec.measurement.parts import CurvePoint, Record, StepCosts
from trtspec.measurement.result import Estimate, ResultDocument
from trtspec.release.baseline import mismatches
from trtspec.release.policies.prediction import ALL, Prediction, figures_of, predictor

MAY_DIFFER = frozenset({"k", "concurrency"})
ABOUT_EQUAL = 0.02
"""Of two K that gain the same within this, the smaller one is better: it wastes less when load rises."""


class Option(Record):
    """One K of one domain at one load."""

    k: int
    measured: Estimate | None
    """Speed-up. Without an interval where it is from a window of the curve."""
    predicted: Prediction | None

    @property
    def error(self) -> float | None:
        """Predicted ÷ measured − 1."""
        if self.measured is None or self.predicted is None or not self.measured.point:
            return None
        return self.predicted.speedup.point / self.measured.point - 1.0


class Choice(Record):
    """What to draft in one domain (`all`: together) at one load."""

    domain: str
    concurrency: int
    k: int | None
    """The best of what was measured, 0 for no speculation; null where nothing was."""
    reason: str
    proposed: int | None
    """What the prediction would choose, where that was not measured."""
    options: tuple[Option, ...]

    def option(self, k: int) -> Option | None:
        """By K."""
        return next((o for o in self.options if o.k == k), None)


class BreakEven(Record):
    """The load at which speculation with this K stops paying."""

    k: int
    source: str
    """`measured` or `predicted`."""
    concurrency: float | None
    """Between two loads that were looked at; null where it gains at none, or at all of them."""
    says: str


class Study(Record):
    """Everything that follows."""

    pair: str
    measured_k: tuple[int, ...]
    concurrencies: tuple[int, ...]
    choices: tuple[Choice, ...]
    break_even: tuple[BreakEven, ...]
    mean_error: float | None
    """Mean absolute error of predicted against measured speed-up, relative to the measured one; `all` only."""
    compared: int
    notes: tuple[str, ...]

    def at(self, domain: str) -> list[Choice]:
        """Of one domain, in the order of the load."""
        return [c for c in self.choices if c.domain == domain]

    @property
    def domains(self) -> list[str]:
        """Without `all`."""
        return list(dict.fromkeys(c.domain for c in self.choices if c.domain != ALL))


def study(results: Sequence[ResultDocument]) -> Study:
    """EvidenceError where the results are not of one pair under equal conditions, or contradict themselves."""
    _require_alike(results)
    return _Study(tuple(results)).made()


def _require_alike(results: Sequence[ResultDocument]) -> None:
    if not results:
        raise EvidenceError("no result to choose from")
    for result in results:
        wrong = [p for p in result.problems if p.severity == "invalid"]
        if wrong:
            raise EvidenceError(f"the measurement contradicts itself: {wrong[0].code}: {wrong[0].message}")
        other = [m for m in mismatches(result, results[0]) if m.key not in MAY_DIFFER]
        if result.pair != results[0].pair:
            raise EvidenceError("results of two pairs", found=result.pair, expected=results[0].pair)
        if other:
            raise EvidenceError(f"the results are not comparable: {other[0].sentence}", fix="measure them alike")


@dataclass(frozen=True)
class _Study:
    results: tuple[ResultDocument, ...]

    def made(self) -> Study:
        loads = sorted({*self._costs(), *(r.conditions.concurrency for r in self.results), *self._curve_loads()})
        domains = [ALL, *dict.fromkeys(d.domain for r in self.results for d in r.domains)]
        choices = [c for domain in domains for load in loads if (c := self._choice(domain, load)).options]
        errors = [e for c in choices if c.domain == ALL for o in c.options if (e := o.error) is not None]
        return Study(
            pair=self.results[0].pair,
            measured_k=tuple(sorted({r.conditions.k for r in self.results})),
            concurrencies=tuple(loads),
            choices=tuple(choices),
            break_even=tuple(_break_even([c for c in choices if c.domain == ALL])),
            mean_error=sum(map(abs, errors)) / len(errors) if errors else None,
            compared=len(errors),
            notes=tuple(self._notes()),
        )

    def _choice(self, domain: str, load: int) -> Choice:
        measured = self._measured(domain, load)
        predicted = self._predicted(domain, load)
        options = tuple(
            Option(k=k, measured=measured.get(k), predicted=predicted.get(k)) for k in sorted({*measured, *predicted})
        )
        k, reason = _best_measured(options)
        proposed = _best_predicted(options, k)
        return Choice(domain=domain, concurrency=load, k=k, reason=reason, proposed=proposed, options=options)

    def _measured(self, domain: str, load: int) -> dict[int, Estimate]:
        """A measurement at this very load; else, for all domains together, the window of a curve."""
        found: dict[int, Estimate] = {}
        for result in self.results:
            figures = figures_of(result, domain)
            if result.conditions.concurrency == load and figures is not None and figures.speedup is not None:
                found[result.conditions.k] = figures.speedup
            elif domain == ALL and (gain := curve_gains(result).get(load)) is not None:
                found.setdefault(result.conditions.k, Estimate(point=gain, low=None, high=None, n=1))
        return found

    def _predicted(self, domain: str, load: int) -> dict[int, Prediction]:
        costs = self._costs().get(load)
        longest = max(self.results, key=lambda r: (r.conditions.k, r.conditions.concurrency == load))
        timed = [r for r in self.results if r.conditions.concurrency == load]
        made = costs and predictor(longest, domain, costs, max(timed, key=lambda r: r.conditions.k, default=None))
        if not made:
            return {}
        return {k: found for k in range(1, made.most + 1) if (found := made.predict(k)) is not None}

    def _costs(self) -> dict[int, StepCosts]:
        """The latest of each load."""
        parts = (c for r in self.results for c in ((r.costs,) if r.costs else ()) + r.costs_at)
        return {c.concurrency: c for c in parts}

    def _curve_loads(self) -> set[int]:
        return {load for r in self.results for load in curve_gains(r)}

    def _notes(self) -> Iterator[str]:
        if not self._costs():
            yield "Step times were not measured (validation.costs): nothing is predicted."
        if not all(r.release_valid for r in self.results):
            yield "These results are not valid for a release; their problems say why."
        longest = max(r.conditions.k for r in self.results)
        yield f"Predicted up to K = {longest}, the longest rounds measured; a longer K has to be measured."


def curve_gains(result: ResultDocument) -> dict[int, float]:
    """Tokens a second with ÷ without drafts, by requests in flight."""
    rates: dict[str, dict[int, float]] = {"target-only": {}, "speculative": {}}
    for point in result.curve:
        if point.concurrency is not None and _sound(point):
            rates[point.mode][point.concurrency] = point.tokens_per_second or 0.0
    alone, drafting = rates["target-only"], rates["speculative"]
    return {load: drafting[load] / alone[load] for load in sorted(alone.keys() & drafting.keys())}


def _sound(point: CurvePoint) -> bool:
    return bool(point.tokens_per_second) and not point.failed


def _best_measured(options: Sequence[Option]) -> tuple[int | None, str]:
    """(K, why); of equals the smallest. No speculation is always an option, with a speed-up of 1."""
    known = [(o.k, o.measured) for o in options if o.measured is not None]
    if not known:
        return None, "not measured at this load"
    most = max(m.point for _, m in known)
    k, best = next((k, m) for k, m in known if m.point >= most * (1 - ABOUT_EQUAL))
    if best.point <= 1.0:
        return 0, f"no measured K pays: K={k} ×{gain(best)} measured"
    unsure = best.low is not None and best.low <= 1.0
    return k, f"×{gain(best)} measured" + (", which may be none" if unsure else "")


def _best_predicted(options: Sequence[Option], chosen: int | None) -> int | None:
    """A K that was not measured and is predicted to be better than what was chosen."""
    known = [(o.k, o.predicted.speedup) for o in options if o.predicted is not None]
    if not known:
        return None
    most = max(p.point for _, p in known)
    k, best = next((k, p) for k, p in known if p.point >= most * (1 - ABOUT_EQUAL))
    k, gains = (k, best.point) if best.point > 1.0 else (0, 1.0)
    own = next((o.measured for o in options if o.k == k), None)
    if k == chosen or own is not None or (k == 0 and chosen is not None):
        return None
    # Against the prediction of what was chosen: one model with one error.
    before = next((p.point for n, p in known if n == chosen), 1.0 if chosen == 0 else None)
    return k if before is None or gains > before * (1 + ABOUT_EQUAL) else None


def _break_even(choices: Sequence[Choice]) -> Iterator[BreakEven]:
    """For each K: over the loads at which it was measured, else over those of the prediction."""
    for k in sorted({o.k for c in choices for o in c.options}):
        own = [(c.concurrency, o) for c in choices if (o := c.option(k)) is not None]
        measured = [(load, o.measured.point) for load, o in own if o.measured is not None]
        predicted = [(load, o.predicted.speedup.point) for load, o in own if o.predicted is not None]
        source, pairs = ("measured", measured) if len(measured) > 1 else ("predicted", predicted)
        if len(pairs) > 1:
            yield _crossing(k, source, pairs)


def _crossing(k: int, source: str, pairs: Sequence[tuple[int, float]]) -> BreakEven:
    loads, gains = zip(*pairs, strict=True)
    found = crossing(loads, gains)
    if found is not None:
        says = f"pays up to about {math.floor(found)} in flight"
    elif gains[0] > 1.0:
        says = f"pays up to {loads[-1]} in flight at least"
    else:
        says = f"does not pay at {loads[0]} in flight"
    return BreakEven(k=k, source=source, concurrency=found, says=says)


def gain(found: Estimate) -> str:
    """With its interval, where it has one."""
    if found.low is None or found.high is None:
        return f"{found.point:.2f}"
    return f"{found.point:.2f} [{found.low:.2f}, {found.high:.2f}]"
