"""Are the speculative texts the target's? Rules on greedy equality and on the quality of answers."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.config.gates import Gates
from trtspec.measurement.result import DomainResult, ResultDocument
from trtspec.release.rows import GateRow, Outcome, make_row

NAME = "greedy equality"
RULE = "equality"


def equality_row(domain: DomainResult, gates: Gates) -> GateRow:
    """Over switched-off domains too: a wrong text is a fault of the pipeline, not of the draft."""
    found = domain.exactness
    if found is None:
        return make_row(RULE, NAME, domain.domain, "not judged", "not measured: answers were sampled")
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
    row = make_row(RULE, NAME, domain.domain, outcome, reason, reads="speculative greedy texts equal to the target's")
    return row.model_copy(update={"measured": share})


def evidence_rows(result: ResultDocument) -> Iterator[GateRow]:
    """One row for each problem of the evidence, or one that says there is none."""
    blocking = [p for p in result.problems if p.severity != "note"]
    for problem in result.problems:
        times = f" ({problem.count} times)" if problem.count > 1 else ""
        # A draft that is never right is a clear no, not a broken measurement: an alarm says so.
        dead = problem.code == "speculation.never-accepted"
        outcome: Outcome = "off" if dead else "not judged" if problem.severity == "note" else "invalid"
        subject = problem.domain or "measurement"
        yield make_row("evidence", "evidence", subject, outcome, f"{problem.code}: {problem.message}{times}")
    if not result.release_valid and not blocking:
        yield make_row(
            "evidence", "evidence", "measurement", "invalid", "the result is marked as not valid for a release"
        )
    if result.interrupted:
        yield make_row("evidence", "evidence", "measurement", "not judged", "interrupted: judged on what was measured")
    if not blocking and result.release_valid:
        quiet = "counters, tokens and totals agree; speculation ran"
        yield make_row("evidence", "evidence", "all domains", "pass", quiet)
