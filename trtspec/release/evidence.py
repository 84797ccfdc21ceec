"""What the rules read: figures of the kept domains, each with the interval that this measurement allows.

A measurement that looked at its figures to stop early has wider intervals than 95 % (:mod:`analysis.sequential`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from trtspec.analysis.intervals import Interval, ratio_interval
from trtspec.analysis.quantiles import quantile_interval
from trtspec.analysis.sequential import Looks
from trtspec.config.gates import Gates
from trtspec.measurement.result import AnswerRow, DomainResult, PromptRow, ResultDocument
from trtspec.measurement.summary import block_times

LEVEL = 0.95


@dataclass(frozen=True)
class Acceptance:
    """α with its interval; `bound`: only that α is at least this is known."""

    interval: Interval
    bound: bool = False


@dataclass(frozen=True)
class Evidence:
    """One result under one set of gates; figures are computed once."""

    result: ResultDocument
    gates: Gates

    def level(self, level: float = LEVEL) -> float:
        """The level of a plain interval, that makes those of all looks hold together."""
        found = self.result.looks
        if found is None:
            return level
        # Stopped by the clock or because prompts ran out: not by what was seen, and nothing can follow.
        final = self.result.stopped in ("all", "budget")
        return Looks(found.budget, found.at, final=final).level(level)

    @cached_property
    def by_domain(self) -> dict[str, Acceptance | None]:
        """α of each domain."""
        return {d.domain: self._alpha(d.rows) for d in self.result.domains}

    @cached_property
    def switched_off(self) -> tuple[str, ...]:
        """Domains whose α is not shown to reach the floor: served without speculation."""
        floor = self.gates.domain_alpha
        return tuple(name for name, a in self.by_domain.items() if a is None or a.interval.low < floor)

    @cached_property
    def kept(self) -> tuple[DomainResult, ...]:
        """The domains that keep speculation."""
        return tuple(d for d in self.result.domains if d.domain not in self.switched_off)

    @property
    def kept_rows(self) -> tuple[PromptRow, ...]:
        """The prompts of those domains."""
        return tuple(row for d in self.kept for row in d.rows)

    @cached_property
    def alpha(self) -> Acceptance | None:
        """α over the domains that keep speculation."""
        return self._alpha(self.kept_rows)

    @cached_property
    def length(self) -> Interval | None:
        """Tokens per round over those domains."""
        rows = [r for r in self.kept_rows if r.rounds and r.emitted is not None]
        top = max([self.result.conditions.k + 1.0, *((r.emitted or 0) / (r.rounds or 1) for r in rows)])
        emitted, rounds = [r.emitted or 0 for r in rows], [r.rounds or 0 for r in rows]
        return ratio_interval(emitted, rounds, level=self.level(), bounds=(0.0, top))

    @cached_property
    def speedup(self) -> Interval | None:
        """Throughput with ÷ without speculation over those domains; ends are infinite where one block says nothing."""
        plain, spec = block_times([d.figures for d in self.kept])
        if not plain:
            return None
        found = ratio_interval(plain, spec, level=self.level(), bounds=None)
        return found or Interval(float("-inf"), float("inf"), sum(plain) / sum(spec), len(plain))

    def percentile(self, of: Callable[[AnswerRow], float | None], q: float) -> Interval | None:
        """A percentile over the speculative answers of those domains."""
        values = [v for r in self.kept_rows if r.speculative and (v := of(r.speculative)) is not None]
        return quantile_interval(values, q, level=self.level())

    def _alpha(self, rows: Iterable[PromptRow]) -> Acceptance | None:
        return acceptance(tuple(rows), self.level())


def acceptance(rows: Sequence[PromptRow], level: float) -> Acceptance | None:
    """accepted ÷ tested; where the server reports totals only, accepted ÷ emitted, which α cannot be below."""
    parts, bound = acceptance_parts(rows)
    found = ratio_interval([a for a, _ in parts], [t for _, t in parts], level=level)
    return None if found is None else Acceptance(found, bound)


def acceptance_parts(rows: Sequence[PromptRow]) -> tuple[list[tuple[float, float]], bool]:
    """(accepted, tested) of each prompt; (accepted, emitted) and True where nothing says what was tested."""
    exact = [(float(r.accepted), float(r.tested)) for r in rows if r.tested is not None and r.accepted is not None]
    if any(tested for _, tested in exact):
        return exact, False
    told = [(r.accepted, r.emitted) for r in rows if r.accepted is not None and r.emitted]
    # More accepted than emitted is invalid evidence, which its own row says; the ratio must only stay one.
    return [(float(min(accepted, emitted)), float(emitted)) for accepted, emitted in told], True
