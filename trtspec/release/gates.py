"""Gates: rules on measured numbers that can block a release. Judging is a pure function of results and rules.

Nothing is drawn at random and no clock is read: the same files give the same judgement, always. The rules are in
:mod:`rules` (limits), :mod:`exact`, :mod:`alarms`, :mod:`baseline` and :mod:`regression`; here they come together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from trtspec.analysis.intervals import Interval
from trtspec.config.gates import Gates
from trtspec.errors import ConfigError
from trtspec.measurement.result import DomainResult, Estimate, Record, ResultDocument
from trtspec.release.alarms import alarms
from trtspec.release.baseline import comparable_row, keys
from trtspec.release.evidence import Acceptance, Evidence
from trtspec.release.exact import equality_row, evidence_rows
from trtspec.release.quality import quality_rows
from trtspec.release.regression import regressions
from trtspec.release.rows import GateRow, Outcome, Verdict, against, floor_outcome, interval_text, make_row
from trtspec.release.rules import apply

__all__ = ["EXIT_CODES", "GateRow", "Judgement", "Outcome", "Verdict", "interval_text", "judge", "verdict_of"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 1, "undecided": 6, "invalid": 6}
# A broken measurement says nothing about the pair; a clear no outweighs what is still open.
_PRECEDENCE: tuple[Verdict, ...] = ("invalid", "fail", "undecided")
_ALPHA = "α = accepted ÷ tested draft tokens"
# The twin's draft is not quantized: another engine, and perhaps another number of GPUs.
_TWIN_MAY_DIFFER = ("streamed", "modes", "concurrency")


class Judgement(Record):
    """The verdict, the rows it follows from, and which domains are served without speculation."""

    verdict: Verdict
    rows: tuple[GateRow, ...]
    kept: tuple[str, ...]
    switched_off: dict[str, str]
    """Domain to reason."""
    alpha: Estimate | None
    """α over the domains that keep speculation: what the release floor judges."""
    alpha_is_bound: bool = False
    """Only accepted ÷ emitted was measured, which α cannot be below."""
    speedup: Estimate | None
    """Throughput with ÷ without speculation over the domains that keep it, at the declared concurrency."""

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 6 invalid or undecided."""
        return EXIT_CODES[self.verdict]

    def headline(self) -> str:
        """The verdict in one line, with what decided it."""
        blocking = [r for r in self.rows if _counts_as(r.outcome) == self.verdict and self.verdict != "pass"]
        if not blocking:
            off = f"; without speculation: {', '.join(self.switched_off)}" if self.switched_off else ""
            return f"PASS: speculation is released for {', '.join(self.kept)}{off}"
        more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
        return f"{self.verdict.upper()}: {blocking[0].subject}: {blocking[0].reason}{more}"


def judge(
    result: ResultDocument,
    gates: Gates,
    baseline: ResultDocument | None = None,
    *,
    twin: ResultDocument | None = None,
    allow_different: Collection[str] = (),
) -> Judgement:
    """Apply every rule.

    `baseline` is the result that this one must not fall behind; `twin` one of the same pair with a draft that is not
    quantized. `allow_different` names conditions in which they may differ (ConfigError for one that there is not).
    """
    evidence = Evidence(result, gates)
    off = {name: _why_off(evidence.by_domain[name], gates.domain_alpha) for name in evidence.switched_off}
    rows = (
        *evidence_rows(result),
        *alarms(result, gates),
        *(_domain_row(d, evidence, off) for d in result.domains),
        _release_row(evidence),
        *(equality_row(d, gates) for d in result.domains),
        *quality_rows(result, gates),
        *apply(evidence),
        *_against_others(evidence, baseline, twin, allow_different),
    )
    found = evidence.alpha
    return Judgement(
        verdict=verdict_of(rows),
        rows=rows,
        kept=tuple(d.domain for d in evidence.kept),
        switched_off=off,
        alpha=None if found is None else _estimate(found.interval, evidence),
        alpha_is_bound=found is not None and found.bound,
        speedup=_estimate(evidence.speedup, evidence),
    )


def verdict_of(rows: Iterable[GateRow]) -> Verdict:
    """The worst outcome."""
    outcomes = {_counts_as(row.outcome) for row in rows}
    return next((v for v in _PRECEDENCE if v in outcomes), "pass")


def _against_others(
    evidence: Evidence, baseline: ResultDocument | None, twin: ResultDocument | None, allowed: Collection[str]
) -> Iterator[GateRow]:
    result = evidence.result
    others = [other for other in (baseline, twin) if other is not None]
    known = frozenset().union(*(keys(result, other) for other in others))
    if unknown := sorted(set(allowed) - known):
        there = ", ".join(sorted(known)) or "none: there is no baseline"
        raise ConfigError("no such condition to allow", found=unknown[0], expected=there)
    if baseline is not None:
        comparable = comparable_row(result, baseline, allowed, "baseline")
        yield comparable
        if comparable.outcome == "pass":
            yield from regressions(evidence, baseline)
    if twin is not None:
        comparable = comparable_row(result, twin, (*allowed, *_TWIN_MAY_DIFFER), "twin")
        yield comparable
        if comparable.outcome == "pass":
            yield from regressions(evidence, twin, twin=True)


def _counts_as(outcome: Outcome) -> str:
    """What was to be judged and was not measured is undecided."""
    return "undecided" if outcome == "not measured" else outcome


def _why_off(alpha: Acceptance | None, floor: float) -> str:
    """Why a domain is served without speculation."""
    if alpha is None:
        return "α was not measured"
    return f"{_named(alpha)} {against(alpha.interval, floor)} does not lie wholly at or above {floor:g}"


def _named(alpha: Acceptance) -> str:
    return "α, of which only accepted ÷ emitted is known as a lower bound," if alpha.bound else "α"


def _domain_row(domain: DomainResult, evidence: Evidence, off: dict[str, str]) -> GateRow:
    floor, name = evidence.gates.domain_alpha, domain.domain
    alpha = evidence.by_domain[name]
    outcome: Outcome = "off" if name in off else "pass"
    reason = f"served without speculation: {off.get(name)}"
    if alpha is not None and name not in off:
        reason = f"{_named(alpha)} {against(alpha.interval, floor)} above {floor:g}"
    found = None if alpha is None else alpha.interval
    return make_row(
        "domain.alpha", "domain α", name, outcome, reason, found, floor, reads=_ALPHA, level=evidence.level()
    )


def _release_row(evidence: Evidence) -> GateRow:
    floor, kept, alpha = evidence.gates.release_alpha, evidence.kept, evidence.alpha
    if not kept or alpha is None:
        return _none_kept(evidence)
    outcome = floor_outcome(alpha.interval, floor)
    if alpha.bound and outcome == "fail":
        outcome = "undecided"  # α itself may be higher
    words = {"pass": "at or above", "fail": "below", "undecided": "cannot be told from"}
    names = ", ".join(d.domain for d in kept)
    reason = f"{_named(alpha)} over {names} {against(alpha.interval, floor)} {words[outcome]} {floor:g}"
    if outcome == "undecided":
        reason += "; a server that reports rounds decides" if alpha.bound else "; more prompts narrow the interval"
    level = evidence.level()
    return make_row(
        "release.alpha", "release α", "release", outcome, reason, alpha.interval, floor, reads=_ALPHA, level=level
    )


def _none_kept(evidence: Evidence) -> GateRow:
    """A clear no only where every domain is below its floor for certain."""
    gates = evidence.gates
    edges = [
        name
        for name, alpha in evidence.by_domain.items()
        if alpha is not None and (alpha.bound or alpha.interval.high >= gates.domain_alpha)
    ]
    outcome: Outcome = "undecided" if edges else "fail"
    reason = "no domain keeps speculation"
    if edges:
        reason += f"; more prompts may show that {', '.join(edges)} can"
    return make_row("release.alpha", "release α", "release", outcome, reason, None, gates.release_alpha, reads=_ALPHA)


def _estimate(found: Interval | None, evidence: Evidence) -> Estimate | None:
    if found is None:
        return None
    row = make_row("", "", "", "pass", "", found)
    return Estimate(point=found.point, low=row.low, high=row.high, n=found.n, level=evidence.level())
