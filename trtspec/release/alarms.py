"""Silent death: a draft can be dead, or the measurement empty, while every text is right and every request succeeds.

Each alarm reads the counters and texts themselves and trusts nothing that the measurement concluded from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trtspec.config.gates import Gates
from trtspec.measurement.result import AnswerRow, DomainResult, ResultDocument
from trtspec.release.rows import GateRow, Outcome, make_row

NAME = "alarm"
ENOUGH = 200
"""Tested tokens from which on "all of them" is no accident."""


class Alarm(NamedTuple):
    """`rule` is its id; `fires` gives what it found in a domain, with the outcome, or None."""

    rule: str
    quiet: str
    fires: Callable[[DomainResult, Gates], tuple[Outcome, str] | None]


def alarms(result: ResultDocument, gates: Gates) -> Iterator[GateRow]:
    """A row for each alarm that fires in a domain; one that says all is quiet where none does."""
    fired = False
    for domain in result.domains:
        for alarm in ALARMS:
            found = alarm.fires(domain, gates)
            if found is not None:
                fired = True
                yield make_row(alarm.rule, NAME, domain.domain, *found)
    if not fired:
        yield make_row("alarm.none", NAME, "all domains", "pass", "; ".join(a.quiet for a in ALARMS))


def _not_running(domain: DomainResult, _: Gates) -> tuple[Outcome, str] | None:
    if any(r.drafted is not None for r in domain.rows):
        return None
    answered = any(r.speculative for r in domain.rows)
    what = "no answer says what was drafted" if answered else "no speculative request was answered"
    return "invalid", f"speculation was asked for and {what}: acceptance was not measured"


def _never_drafted(domain: DomainResult, _: Gates) -> tuple[Outcome, str] | None:
    counted = [r.drafted for r in domain.rows if r.drafted is not None]
    if not counted or any(counted):
        return None
    return "invalid", f"no draft token in {len(counted)} answers: the target answered alone, in the name of speculation"


def _never_accepted(domain: DomainResult, _: Gates) -> tuple[Outcome, str] | None:
    drafted, accepted = _sum(domain, "drafted"), _sum(domain, "accepted")
    if not drafted or accepted:
        return None
    return "fail", (
        f"none of {drafted} draft tokens was accepted: a draft that is loaded wrongly (quantization, tokenizer, "
        "template) looks like this, and costs its time in every round"
    )


def _degenerate(domain: DomainResult, gates: Gates) -> tuple[Outcome, str] | None:
    """Loops; and every token accepted, where half of the texts are loops."""
    spec = [r.speculative for r in domain.rows if r.speculative]
    loops, looked = _loops(spec)
    if not looked:
        return None
    share, limit = loops / looked, gates.max_degenerate
    own, of = _loops([r.target_only for r in domain.rows if r.target_only])
    alone = f"; of the target's own answers {own} of {of}" if of else ""
    told = f"{loops} of {looked} speculative answers end in a loop{alone}"
    if _all_accepted(domain) and 2 * loops >= looked:
        return "invalid", f"every draft token was accepted and {told}: broken logits look like this"
    if limit is not None and share > limit:
        return "invalid", f"{told}: loops are easy to draft, α on them says nothing about real answers"
    return None


def _all_right(domain: DomainResult, gates: Gates) -> tuple[Outcome, str] | None:
    """100 % with sound texts is possible, and worth a look."""
    if not _all_accepted(domain) or _degenerate(domain, gates) is not None:
        return None
    tested = _sum(domain, "tested")
    return "pass", f"all {tested} tested tokens were accepted: right only if the draft is the target itself; look at it"


ALARMS = (
    Alarm("alarm.not-running", "speculation ran", _not_running),
    Alarm("alarm.never-drafted", "drafts were made", _never_drafted),
    Alarm("alarm.never-accepted", "some were accepted", _never_accepted),
    Alarm("alarm.degenerate", "texts are no loops", _degenerate),
    Alarm("alarm.all-accepted", "some were rejected", _all_right),
)


def _all_accepted(domain: DomainResult) -> bool:
    tested = _sum(domain, "tested")
    return tested >= ENOUGH and tested == _sum(domain, "accepted")


def _loops(answers: list[AnswerRow]) -> tuple[int, int]:
    looked = [a.repeats for a in answers if a.repeats is not None]
    return looked.count(True), len(looked)


def _sum(domain: DomainResult, counter: str) -> int:
    return sum(getattr(row, counter) or 0 for row in domain.rows)
