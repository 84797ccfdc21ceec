"""Predicted speed-up of one domain with any K: measured acceptance, measured step times, measured answers.

A prediction is for whole requests, as the measured speed-up is: what a request takes before its first token (prompt,
queue, network) counts on both sides. Where that was not measured at a load, it is for decoding alone, and says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from trtspec.analysis.prediction import StepTimes, answers, fitted
from trtspec.measurement.costs import times_of
from trtspec.measurement.parts import Cost, Record, StepCosts
from trtspec.measurement.result import DomainResult, Estimate, Figures, ResultDocument

ALL = "all"
"""Name of the domains together."""
Z = 1.96
MEDIAN = 1.2533 / 1.349
"""Standard error of a median = this · quartile distance ÷ √n, for a normal spread."""
Scope = Literal["requests", "decoding"]


class Prediction(Record):
    """A predicted speed-up. The interval holds what chance does to acceptance and step times, not the model's error."""

    speedup: Estimate
    scope: Scope
    """`requests`: whole ones; `decoding`: without prompts, because what those take was not measured."""


@dataclass(frozen=True)
class Start:
    """Seconds of a request before its decoding, target alone and with drafts."""

    alone: float
    drafting: float


@dataclass(frozen=True)
class Lengths:
    """How many answers had how many tokens: those at their limit, and those that ended by themselves, end included."""

    cut: Mapping[int, int]
    ended: Mapping[int, int]

    @property
    def requests(self) -> int:
        """Answers."""
        return sum(self.cut.values()) + sum(self.ended.values())

    @property
    def tokens(self) -> int:
        """Steps that the target alone takes for them."""
        return sum(n * count for part in (self.cut, self.ended) for n, count in part.items())


def seconds_with_drafts(chances: Sequence[float], k: int, lengths: Lengths, times: StepTimes) -> float:
    """Of all answers, without their starts."""
    total = 0.0
    for part, cut in ((lengths.cut, True), (lengths.ended, False)):
        if part:
            found = answers(chances, k, max(part), times, cut=cut).seconds
            total += sum(count * float(found[n]) for n, count in part.items())
    return total


def speedup_of(chances: Sequence[float], k: int, lengths: Lengths, times: StepTimes, start: Start | None) -> float:
    """Seconds of the target alone ÷ seconds with drafts, for the same tokens."""
    alone = lengths.tokens * times.token
    drafting = seconds_with_drafts(chances, k, lengths, times)
    if start is not None:
        alone += lengths.requests * start.alone
        drafting += lengths.requests * start.drafting
    return alone / drafting


@dataclass(frozen=True)
class Predictor:
    """Predicts for one domain at one load. `measured_k`: draft tokens of the rounds its acceptance is from."""

    figures: Figures
    lengths: Lengths
    costs: StepCosts
    times: StepTimes
    start: Start | None
    measured_k: int

    @property
    def most(self) -> int:
        """The longest draft that it can say anything about."""
        known = fitted_positions(self.figures.per_position or ())
        return min(self.measured_k, self.times.most) if known else 0

    def predict(self, k: int) -> Prediction | None:
        """None beyond what acceptance and step times were measured for."""
        if not 1 <= k <= self.most or not self.lengths.requests:
            return None
        point = self._speedup(self.figures.per_position or (), k)
        low, high = (self._speedup(self._positions(end), k) for end in ("low", "high"))
        time = self._time_error(k)
        below = math.hypot(math.log(point / min(low, point)), time)
        above = math.hypot(math.log(max(high, point) / point), time)
        intervals = [i for i in self.figures.position_intervals or () if i is not None]
        n = intervals[0].n if intervals else 0
        ends = {"low": point * math.exp(-below), "high": point * math.exp(above)} if intervals else {}
        estimate = Estimate(point=point, low=ends.get("low"), high=ends.get("high"), n=n)
        return Prediction(speedup=estimate, scope="decoding" if self.start is None else "requests")

    def _speedup(self, positions: Sequence[float | None], k: int) -> float:
        return speedup_of(fitted_positions(tuple(positions)), k, self.lengths, self.times, self.start)

    def _positions(self, end: Literal["low", "high"]) -> tuple[float | None, ...]:
        """All positions at that end of their intervals at once: rounds of one prompt go together."""
        own = self.figures.per_position or ()
        intervals = self.figures.position_intervals or (None,) * len(own)
        found: list[float | None] = []
        before = 1.0
        for point, interval in zip(own, intervals, strict=True):
            value = point if interval is None or interval.low is None else getattr(interval, end)
            before = before if value is None else min(before, value)
            found.append(None if value is None else before)
        return tuple(found)

    def _time_error(self, k: int) -> float:
        """Half the interval of the ratio of token and round times, on a logarithm."""
        verify = [c for n, c in self.costs.verify.items() if n >= k] or list(self.costs.verify.values())
        parts = ((self.costs.draft_step, k), (verify[0], 1), (self.costs.overhead, 1))
        whole = self.times.round(k)
        of_round = math.hypot(*(times * _error(cost) / whole for cost, times in parts))
        token = self.costs.token or self.costs.target_step
        return Z * math.hypot(of_round, _error(token) / self.times.token)


def predictor(
    acceptance: ResultDocument, domain: str, costs: StepCosts, timed: ResultDocument | None
) -> Predictor | None:
    """Acceptance and answers from one document, step times from `costs`, starts of requests from `timed`.

    None where one of the first two was not measured.
    """
    figures, times = figures_of(acceptance, domain), times_of(costs)
    if figures is None or not figures.per_position or times is None:
        return None
    made = Predictor(figures, lengths_of(acceptance, domain), costs, times, None, acceptance.conditions.k)
    return made if timed is None or made.most < 1 else replace(made, start=_start(timed, costs, domain, times))


def figures_of(result: ResultDocument, domain: str) -> Figures | None:
    """Of a domain, or of all."""
    if domain == ALL:
        return result.overall
    return next((d.figures for d in result.domains if d.domain == domain), None)


def lengths_of(result: ResultDocument, domain: str) -> Lengths:
    """Of the speculative answers."""
    cut: Counter[int] = Counter()
    ended: Counter[int] = Counter()
    for row in (r for d in _domains(result, domain) for r in d.rows if r.speculative is not None):
        assert row.speculative is not None
        if row.speculative.finish_reason == "length":
            cut[row.speculative.output_tokens] += 1
        else:
            ended[row.speculative.output_tokens + 1] += 1
    return Lengths({n: c for n, c in cut.items() if n}, dict(ended))


def _start(timed: ResultDocument, costs: StepCosts, domain: str, times: StepTimes) -> Start | None:
    """From the mean time to the first text, less the step or the round that made it."""
    if timed.conditions.concurrency != costs.concurrency or timed.conditions.k > times.most:
        return None
    rows = [r for d in _domains(timed, domain) for r in d.rows]
    alone = _mean([r.target_only.first_token_seconds for r in rows if r.target_only])
    drafting = _mean([r.speculative.first_token_seconds for r in rows if r.speculative])
    if alone is None or drafting is None:
        return None
    return Start(max(0.0, alone - times.token), max(0.0, drafting - times.round(timed.conditions.k)))


def _domains(result: ResultDocument, domain: str) -> list[DomainResult]:
    return [d for d in result.domains if domain in (ALL, d.domain)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _error(cost: Cost | None) -> float:
    if cost is None or cost.low is None or cost.high is None:
        return 0.0
    return MEDIAN * (cost.high - cost.low) / math.sqrt(cost.n)


@lru_cache(maxsize=256)
def fitted_positions(positions: tuple[float | None, ...]) -> tuple[float, ...]:
    """`fitted`, kept: every K of a domain asks for the same."""
    return fitted(positions)
