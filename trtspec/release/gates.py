"""Gates: rules on measured numbers that can block a release. Judging is a pure function of result and rules.

A bound on a measured ratio is passed when its whole interval is above it, failed when its whole interval is below,
and undecided in between: a verdict must not depend on which side of a floor a lucky sample fell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from trtspec.config.validation import Gates
from trtspec.measurement.result import DomainResult, Estimate, Record, ResultDocument
from trtspec.measurement.summary import alpha_over, speedup_over

Outcome = Literal["pass", "fail", "undecided", "invalid", "off", "not judged"]
Verdict = Literal["pass", "fail", "undecided", "invalid"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 1, "undecided": 6, "invalid": 6}
# A broken measurement says nothing about the pair; a clear no outweighs what is still open.
_PRECEDENCE: tuple[Verdict, ...] = ("invalid", "fail", "undecided")
_NEVER_ACCEPTED = "speculation.never-accepted"


class GateRow(Record):
    """One rule applied to one subject."""

    name: str
    subject: str
    """A domain, or what the rule is about."""
    measured: float | None
    """Null where it was not measured."""
    low: float | None
    high: float | None
    floor: float | None
    outcome: Outcome
    reason: str


class Judgement(Record):
    """The verdict, the rows it follows from, and which domains are served without speculation."""

    verdict: Verdict
    rows: tuple[GateRow, ...]
    kept: tuple[str, ...]
    switched_off: dict[str, str]
    """Domain to reason."""
    alpha: Estimate | None
    """α over the domains that keep speculation: what the release floor judges."""
    speedup: Estimate | None
    """Throughput with ÷ without speculation over the domains that keep it, at the declared concurrency."""

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 6 invalid or undecided."""
        return EXIT_CODES[self.verdict]

    def headline(self) -> str:
        """The verdict in one line, with what decided it."""
        blocking = [r for r in self.rows if r.outcome == self.verdict and self.verdict != "pass"]
        if not blocking:
            off = f"; without speculation: {', '.join(self.switched_off)}" if self.switched_off else ""
            return f"PASS: speculation is released for {', '.join(self.kept)}{off}"
        more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
        return f"{self.verdict.upper()}: {blocking[0].subject}: {blocking[0].reason}{more}"


def judge(result: ResultDocument, gates: Gates) -> Judgement:
    """Apply every gate. The same result and gates give the same judgement, always."""
    seed = result.conditions.seed
    switched_off = {
        d.domain: reason for d in result.domains if (reason := _why_off(d.figures.alpha, gates.domain_alpha))
    }
    kept = [d for d in result.domains if d.domain not in switched_off]
    alpha = alpha_over((row for d in kept for row in d.rows), seed)
    speedup = speedup_over([d.figures for d in kept], seed)
    rows = (
        *_evidence(result),
        *(_domain_row(d, gates.domain_alpha, switched_off) for d in result.domains),
        _release_row(alpha, kept, gates.release_alpha),
        *(_equality_row(d, gates) for d in result.domains),
        _speed_row(speedup, kept, gates.min_speedup, result),
    )
    outcomes = {row.outcome for row in rows}
    return Judgement(
        verdict=next((v for v in _PRECEDENCE if v in outcomes), "pass"),
        rows=rows,
        kept=tuple(d.domain for d in kept),
        switched_off=switched_off,
        alpha=alpha,
        speedup=speedup,
    )


def interval_text(found: Estimate | None, digits: int = 2) -> str:
    """`0.70 [0.64, 0.75]`, or `not measured`."""
    if found is None:
        return "not measured"
    ends = (
        "no interval" if found.low is None or found.high is None else f"{found.low:.{digits}f}, {found.high:.{digits}f}"
    )
    return f"{found.point:.{digits}f} [{ends}]"


def _against(found: Estimate | None, floor: float) -> str:
    """The interval in words, with as many digits as show on which side of the floor its ends lie."""
    ends = [] if found is None else [end for end in (found.low, found.high) if end is not None]
    hidden = any(round(end, 2) == round(floor, 2) != end for end in ends)
    return interval_text(found, 4 if hidden else 2)


def _why_off(alpha: Estimate | None, floor: float) -> str:
    """Why a domain is served without speculation; empty where it keeps it."""
    if alpha is None:
        return "α was not measured"
    if alpha.low is not None and alpha.low >= floor:
        return ""
    return f"α {_against(alpha, floor)} does not lie wholly at or above {floor:g}"


def _evidence(result: ResultDocument) -> Iterator[GateRow]:
    """One row for each problem of the evidence, or one that says there is none."""
    for problem in result.problems:
        times = f" ({problem.count} times)" if problem.count > 1 else ""
        dead = problem.code == _NEVER_ACCEPTED
        yield _row(
            "evidence", problem.domain, "off" if dead else "invalid", f"{problem.code}: {problem.message}{times}"
        )
    if not result.problems:
        yield _row("evidence", "all domains", "pass", "counters, tokens and totals agree; speculation ran")


def _domain_row(domain: DomainResult, floor: float, switched_off: dict[str, str]) -> GateRow:
    alpha = domain.figures.alpha
    off = switched_off.get(domain.domain)
    reason = f"served without speculation: {off}" if off else f"α {_against(alpha, floor)} above {floor:g}"
    return _row("domain α", domain.domain, "off" if off else "pass", reason, alpha, floor)


def _release_row(alpha: Estimate | None, kept: Sequence[DomainResult], floor: float) -> GateRow:
    if not kept:
        return _row("release α", "release", "fail", "no domain keeps speculation", None, floor)
    names = ", ".join(d.domain for d in kept)
    outcome = _side(alpha, floor)
    words = {"pass": "at or above", "fail": "below", "undecided": "cannot be told from"}
    reason = f"α over {names} {_against(alpha, floor)} {words.get(outcome, 'against')} {floor:g}"
    if outcome == "undecided":
        reason += f"; {'more prompts narrow the interval' if alpha else 'nothing was measured'}"
    return _row("release α", "release", outcome, reason, alpha, floor)


def _side(found: Estimate | None, floor: float) -> Literal["pass", "fail", "undecided"]:
    """Where the whole interval lies."""
    if found is None or found.low is None or found.high is None:
        return "undecided"
    if found.low >= floor:
        return "pass"
    return "fail" if found.high < floor else "undecided"


def _equality_row(domain: DomainResult, gates: Gates) -> GateRow:
    """Over switched-off domains too: a wrong text is a fault of the pipeline, not of the draft."""
    found = domain.exactness
    if found is None:
        return _row("greedy equality", domain.domain, "not judged", "not measured: answers were sampled")
    undiagnosed = sum(d.kind == "undiagnosed" for d in found.differences)
    # By the gap, not by the recorded kind: a result may be judged again with another tolerance.
    ties = sum(d.gap is not None and d.gap <= gates.near_tie for d in found.differences)
    real = len(found.differences) - ties - undiagnosed
    named = ((ties, f"at a near-tie (gap ≤ {gates.near_tie:g})"), (real, "really different"))
    parts = [f"{count} {name}" for count, name in (*named, (undiagnosed, "undiagnosed")) if count]
    reason = ", ".join([f"{found.equal} of {found.compared} texts equal", *parts])
    share = found.equal / found.compared if found.compared else None
    outcome: Outcome
    if gates.greedy_equality == "off":
        outcome, reason = "not judged", f"{reason}; gates.greedy_equality is off"
    elif not found.compared:
        outcome = "undecided"
    elif gates.greedy_equality == "exact":
        outcome = "pass" if found.equal == found.compared else "fail"
    elif real:
        outcome = "fail"
    else:
        outcome = "undecided" if undiagnosed else "pass"
    row = _row("greedy equality", domain.domain, outcome, reason)
    return row.model_copy(update={"measured": share})


def _speed_row(
    speedup: Estimate | None, kept: Sequence[DomainResult], floor: float | None, result: ResultDocument
) -> GateRow:
    conditions = result.conditions
    at = f"{conditions.concurrency} in flight, K={conditions.k}, {conditions.backend} backend on {conditions.gpu}"
    if not kept:
        return _row("speed-up", "release", "not judged", "no domain keeps speculation", None, floor)
    short = _smallest_block(kept)
    if short is not None and short < conditions.concurrency:
        at += f", never reached: a block had {short} requests, measure more prompts"
        outcome: Outcome = "undecided"
    else:
        outcome = "not judged" if floor is None else _side(speedup, floor)
    if floor is None:
        reason = f"gates.min_speedup is unset; {_speed_words(speedup, kept, result)} ({at})"
        return _row("speed-up", "release", "not judged", reason, speedup, None)
    words = {"pass": "at or above", "fail": "below", "undecided": "cannot be told from"}
    return _row(
        "speed-up", "release", outcome, f"{_against(speedup, floor)} {words[outcome]} {floor:g} ({at})", speedup, floor
    )


def _smallest_block(kept: Sequence[DomainResult]) -> int | None:
    """Requests of the smallest block: no more than that can have been in flight."""
    return min((b.requests for d in kept if d.figures.speculative for b in d.figures.speculative.blocks), default=None)


def _speed_words(speedup: Estimate | None, kept: Sequence[DomainResult], result: ResultDocument) -> str:
    """The measured speed-up and, from the measured times, why it is what it is."""
    if speedup is None:
        return "not measured"
    words = f"measured {interval_text(speedup)}× the target-only throughput"
    round_seconds, token_seconds, tokens = _times(kept)
    if round_seconds is None or token_seconds is None or tokens is None:
        return words
    words += (
        f": a round took {1000 * round_seconds:.1f} ms and emitted {tokens:.2f} tokens, a target-only token took "
        f"{1000 * token_seconds:.1f} ms, so a round must emit {round_seconds / token_seconds:.2f} to pay"
    )
    loses = speedup.point < 1.0 and round_seconds > tokens * token_seconds
    if loses and result.conditions.backend == "reference":
        beyond = 1000 * (round_seconds - token_seconds)
        words += (
            f"; beyond one target step a round spends {beyond:.1f} ms on drafting and on calls between client, "
            "pipeline and engines, more than the steps it saves on a model this fast: the reference backend shows "
            "that the pair works, not what it gains on a GPU"
        )
    return words


def _times(kept: Sequence[DomainResult]) -> tuple[float | None, float | None, float | None]:
    """(seconds a round, seconds a target-only token, tokens a round), over requests; prompt processing is in both."""
    rows = [r for d in kept for r in d.rows if r.speculative and r.target_only and r.rounds and r.emitted]
    rounds = sum(r.rounds or 0 for r in rows)
    plain_tokens = sum(r.target_only.output_tokens for r in rows if r.target_only)
    if not rounds or not plain_tokens:
        return None, None, None
    return (
        sum(r.speculative.seconds for r in rows if r.speculative) / rounds,
        sum(r.target_only.seconds for r in rows if r.target_only) / plain_tokens,
        sum(r.emitted or 0 for r in rows) / rounds,
    )


def _row(
    name: str,
    subject: str,
    outcome: Outcome,
    reason: str,
    found: Estimate | None = None,
    floor: float | None = None,
) -> GateRow:
    return GateRow(
        name=name,
        subject=subject,
        measured=None if found is None else found.point,
        low=None if found is None else found.low,
        high=None if found is None else found.high,
        floor=floor,
        outcome=outcome,
        reason=reason,
    )
