"""Limits: each rule reads what it says, and a worse figure never turns a no into a yes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.measurement.result import LooksRow, MemoryRow, ResultDocument
from trtspec.release.gates import judge
from trtspec.release.rows import GateRow
from trtspec.release.rules import RULES

ORDER = {"pass": 0, "undecided": 1, "fail": 2}


def row(made: ResultDocument, rule: str, **gates: Any) -> GateRow | None:
    found = [r for r in judge(made, Gates(**gates)).rows if r.rule == rule]
    assert len(found) <= 1
    return found[0] if found else None


def outcome(made: ResultDocument, rule: str, **gates: Any) -> str:
    found = row(made, rule, **gates)
    assert found is not None
    return found.outcome


def timed(made: ResultDocument, seconds: list[float]) -> ResultDocument:
    """The speculative answers' times to the first token and per token, in turn."""
    (domain,) = made.domains
    rows = tuple(
        r.model_copy(
            update={
                "speculative": r.speculative
                and r.speculative.model_copy(update={"first_token_seconds": s, "per_token_seconds": s / 10})
            }
        )
        for r, s in zip(domain.rows, (seconds * len(domain.rows))[: len(domain.rows)], strict=True)
    )
    return made.model_copy(update={"domains": (domain.model_copy(update={"rows": rows}),)})


def test_every_rule_reads_a_key_of_the_gates_that_is_unset() -> None:
    assert {rule.setting for rule in RULES} <= set(Gates.model_fields)
    assert all(getattr(Gates(), rule.setting) is None for rule in RULES)
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(("floor", "wanted"), [(2.0, "pass"), (4.0, "fail")])
def test_acceptance_length(floor: float, wanted: str) -> None:
    made = result({"code": 0.75})  # 3.05 tokens a round of four drafts
    found = row(made, "length", min_acceptance_length=floor)
    assert found is not None
    assert (found.outcome, found.limit, found.measured) == (wanted, floor, pytest.approx(3.05, abs=0.1))


@pytest.mark.parametrize("what", ["ttft", "tpot"])
def test_latency_limits_are_judged_by_order_statistics(what: str) -> None:
    made = timed(result({"code": 0.8}), [0.1 * i for i in range(1, 61)])
    scale = 1.0 if what == "ttft" else 0.1
    limits = [(6.0, "pass"), (3.0, "undecided"), (1.0, "fail")]
    assert [outcome(made, f"{what}.p50", **{f"max_{what}_p50": scale * s}) for s, _ in limits] == [w for _, w in limits]


def test_a_tail_of_too_few_answers_decides_nothing() -> None:
    made = timed(result({"code": 0.8}), [0.1])
    found = row(made, "ttft.p99", max_ttft_p99=10.0)
    assert found is not None
    assert (found.outcome, found.high) == ("undecided", None)
    assert "open]" in found.reason


def test_memory() -> None:
    made = result({"code": 0.8}).model_copy(update={"memory": MemoryRow(device="gpu 0", total_bytes=80, used_bytes=72)})
    assert outcome(made, "memory", min_memory_headroom=0.05) == "pass"
    assert outcome(made, "memory", min_memory_headroom=0.2) == "fail"


@pytest.mark.parametrize("setting", ["max_ttft_p50", "max_tpot_p99", "min_memory_headroom"])
def test_a_limit_on_what_was_not_measured_is_undecided(setting: str) -> None:
    judgement = judge(result({"code": 0.8}), Gates(**{setting: 0.5}))
    assert (judgement.verdict, judgement.exit_code) == ("undecided", 6)
    assert [r.limit for r in judgement.rows if r.outcome == "not measured"] == [0.5]
    assert "nothing was measured" in judgement.headline()


def test_what_is_neither_limited_nor_measured_has_no_row() -> None:
    assert row(result({"code": 0.8}), "memory") is None
    assert row(result({"code": 0.8}), "ttft.p50") is None


def test_a_server_that_reports_totals_only_is_judged_by_the_lower_bound() -> None:
    made = result({"code": 0.8})
    (domain,) = made.domains
    rows = tuple(r.model_copy(update={"rounds": None, "tested": None}) for r in domain.rows)
    totals = made.model_copy(update={"domains": (domain.model_copy(update={"rows": rows}),)})
    judgement = judge(totals, Gates())
    assert judgement.alpha_is_bound
    bound, alpha = judgement.alpha, judge(made, Gates()).alpha
    assert bound is not None
    assert alpha is not None
    assert bound.point < alpha.point
    found = row(totals, "release.alpha")
    assert found is not None
    assert "only accepted ÷ emitted is known as a lower bound" in found.reason
    # Below the floor, the bound says nothing: α may be above it.
    assert outcome(totals, "release.alpha", release_alpha=0.9, domain_alpha=0.1) == "undecided"
    assert outcome(made, "release.alpha", release_alpha=0.9, domain_alpha=0.1) == "fail"
    assert outcome(totals, "length", min_acceptance_length=2.0) == "not measured"


def test_a_measurement_that_was_looked_at_has_wider_intervals() -> None:
    made = result({"code": 0.75})
    looked = made.model_copy(update={"looks": LooksRow(budget=60, at=(15, 30, 45, 60)), "stopped": "all"})
    stopped = made.model_copy(update={"looks": LooksRow(budget=120, at=(30, 60)), "stopped": "decided"})
    widths, levels = [], []
    for each in (made, looked, stopped):
        found = row(each, "release.alpha")
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        widths.append(found.high - found.low)
        levels.append(found.level or 0.0)
    assert widths == sorted(widths)
    assert levels[0] == 0.95
    assert 0.95 < levels[1] < 0.96
    assert levels[2] > 0.99


@settings(max_examples=25, deadline=None)
@given(st.floats(0.3, 0.85), st.floats(0.0, 0.5), st.floats(0.2, 0.9))
def test_a_worse_alpha_never_turns_fail_into_pass(alpha: float, thinned: float, floor: float) -> None:
    """The same prompts and rounds, a share of the accepted tokens taken away from each."""
    made = result({"code": round(alpha, 2)})
    (domain,) = made.domains
    rows = tuple(r.model_copy(update={"accepted": int((r.accepted or 0) * (1 - thinned))}) for r in domain.rows)
    worse = made.model_copy(update={"domains": (domain.model_copy(update={"rows": rows}),)})
    before, after = (judge(each, Gates(release_alpha=floor, domain_alpha=0.0)) for each in (made, worse))
    if before.verdict == "fail":
        assert after.verdict == "fail"
    if after.verdict == "pass":
        assert before.verdict == "pass"


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["min_acceptance_length", "min_speedup", "release_alpha"]), st.floats(0, 1), st.floats(0, 1))
def test_a_stricter_limit_never_turns_fail_into_pass(setting: str, one: float, other: float) -> None:
    made = result({"code": 0.75})
    scale = {"min_acceptance_length": 4.0, "min_speedup": 2.0, "release_alpha": 0.0}[setting]
    lax, strict = (x * scale + 1.0 if scale else x for x in sorted((one, other)))
    first, second = (judge(made, Gates(**{setting: limit})).verdict for limit in (lax, strict))
    assert ORDER[second] >= ORDER[first] or second == first
