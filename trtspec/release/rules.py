"""The limits as data: each rule names its setting, what it reads, and on which side of the limit the figure must lie.

A limit is kept when the whole interval is on its good side, broken when the whole interval is on the other, and
undecided in between: a verdict must not depend on which side of a floor a lucky sample fell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from trtspec.analysis.intervals import Interval
from trtspec.release.evidence import Evidence
from trtspec.release.rows import GateRow, Outcome, against, ceiling_outcome, floor_outcome, interval_text, make_row
from trtspec.release.times import speed_words


@dataclass(frozen=True)
class Rule:
    """One limit of `gates` on one figure of the domains that keep speculation."""

    id: str
    name: str
    setting: str
    """Key of `gates` that holds the limit; unset there: reported, not judged."""
    reads: str
    kind: Literal["floor", "ceiling"]
    read: Callable[[Evidence], Interval | None]
    caveat: Callable[[Evidence], str] = lambda _: ""
    """What keeps the figure from deciding anything; empty where nothing does."""
    words: Callable[[Evidence], str] = lambda _: ""
    """More about the figure where it is only reported."""
    digits: int = 2


def _rounds_missing(evidence: Evidence) -> str:
    return "" if evidence.length else "the server reports totals and no rounds"


def _load_missing(evidence: Evidence) -> str:
    """No more requests than the smallest block holds can have been in flight."""
    blocks = [b.requests for d in evidence.kept if d.figures.speculative for b in d.figures.speculative.blocks]
    asked = evidence.result.conditions.concurrency
    if not blocks or min(blocks) >= asked:
        return ""
    return f"{asked} in flight never reached: a block had {min(blocks)} requests, measure more prompts"


def _latency(q: int, setting: str, what: Literal["ttft", "tpot"]) -> Rule:
    names = {
        "ttft": ("time to first token", "seconds to the first text"),
        "tpot": ("time per token", "seconds a token"),
    }
    name, reads = names[what]
    key = "first_token_seconds" if what == "ttft" else "per_token_seconds"
    return Rule(
        id=f"{what}.p{q}",
        name=f"{name} p{q}",
        setting=setting,
        reads=f"{reads}, percentile {q} of the speculative answers",
        kind="ceiling",
        read=lambda evidence: evidence.percentile(lambda answer: getattr(answer, key), q / 100),
        caveat=_load_missing,
        digits=4,
    )


def _headroom(evidence: Evidence) -> Interval | None:
    memory = evidence.result.memory
    return None if memory is None else Interval(memory.headroom, memory.headroom, memory.headroom, 1)


def _speed_words(evidence: Evidence) -> str:
    return speed_words(evidence.speedup, evidence.kept, evidence.result)


RULES: tuple[Rule, ...] = (
    Rule(
        "length", "acceptance length", "min_acceptance_length", "tokens per round, the target's own included",
        "floor", lambda evidence: evidence.length, _rounds_missing,
    ),
    Rule(
        "speedup", "speed-up", "min_speedup", "throughput with ÷ without speculation", "floor",
        lambda evidence: evidence.speedup, _load_missing, _speed_words,
    ),
    _latency(50, "max_ttft_p50", "ttft"),
    _latency(99, "max_ttft_p99", "ttft"),
    _latency(50, "max_tpot_p50", "tpot"),
    _latency(99, "max_tpot_p99", "tpot"),
    Rule(
        "memory", "memory head-room", "min_memory_headroom", "free ÷ total memory of the fullest device",
        "floor", _headroom,
    ),
)  # fmt: skip


def apply(evidence: Evidence) -> Iterator[GateRow]:
    """A row of each rule that has a limit or something to report."""
    for rule in RULES:
        row = _applied(rule, evidence)
        if row.limit is not None or row.measured is not None or rule.id == "speedup":
            yield row


def _applied(rule: Rule, evidence: Evidence) -> GateRow:
    limit: float | None = getattr(evidence.gates, rule.setting)
    if not evidence.kept and rule.id != "memory":
        return _made(rule, "not judged", "no domain keeps speculation", None, limit, evidence)
    found, caveat = rule.read(evidence), rule.caveat(evidence)
    at = f"({_conditions(evidence)}{', ' + caveat if caveat else ''})"
    if limit is None:
        told = rule.words(evidence) or f"measured {interval_text(found, rule.digits)}" if found else "not measured"
        return _made(rule, "not judged", f"gates.{rule.setting} is unset; {told} {at}", found, None, evidence)
    if found is None:
        return _made(rule, "not measured", f"a limit is set and nothing was measured {at}", None, limit, evidence)
    outcome = (floor_outcome if rule.kind == "floor" else ceiling_outcome)(found, limit)
    if caveat:
        outcome = "undecided"
    words = _WORDS[rule.kind][outcome]
    reason = f"{against(found, limit, rule.digits)} {words} {limit:g} {at}"
    return _made(rule, outcome, reason, found, limit, evidence)


_WORDS = {
    "floor": {"pass": "at or above", "fail": "below", "undecided": "cannot be told from"},
    "ceiling": {"pass": "at or below", "fail": "above", "undecided": "cannot be told from"},
}


def _made(
    rule: Rule, outcome: Outcome, reason: str, found: Interval | None, limit: float | None, evidence: Evidence
) -> GateRow:
    level = evidence.level()
    return make_row(rule.id, rule.name, "release", outcome, reason, found, limit, reads=rule.reads, level=level)


def _conditions(evidence: Evidence) -> str:
    asked = evidence.result.conditions
    return f"{asked.concurrency} in flight, K={asked.k}, {asked.backend} backend on {asked.gpu}"
