"""Verdicts follow the rules on intervals, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.release.made import result
from trtspec.config.validation import Gates
from trtspec.measurement.result import Estimate, ProblemRow, ResultDocument
from trtspec.release.gates import GateRow, Judgement, interval_text, judge

DEFAULT = Gates()


def row(judgement: Judgement, name: str, subject: str = "release") -> GateRow:
    (found,) = [r for r in judgement.rows if (r.name, r.subject) == (name, subject)]
    return found


def with_problem(made: ResultDocument, code: str) -> ResultDocument:
    problem = ProblemRow(code=code, domain="code", message="prompt code-0: no", count=3)
    return made.model_copy(update={"problems": (problem,)})


def test_a_good_pair_passes() -> None:
    judgement = judge(result({"code": 0.75, "law": 0.72}), DEFAULT)
    assert (judgement.verdict, judgement.exit_code, judgement.switched_off) == ("pass", 0, {})
    assert judgement.kept == ("code", "law")
    assert {r.outcome for r in judgement.rows} == {"pass", "not judged"}
    assert judgement.headline() == "PASS: speculation is released for code, law"


def test_a_weak_domain_is_switched_off_and_leaves_the_release_alpha() -> None:
    judgement = judge(result({"code": 0.75, "law": 0.35}), DEFAULT)
    assert (judgement.verdict, judgement.kept) == ("pass", ("code",))
    assert judgement.alpha is not None
    assert judgement.alpha.point == pytest.approx(0.75, abs=0.03)
    assert judgement.alpha.n == 60
    (reason,) = judgement.switched_off.values()
    assert reason.startswith("α 0.3")
    assert reason.endswith("does not lie wholly at or above 0.55")
    assert row(judgement, "domain α", "law").outcome == "off"
    assert judgement.headline().endswith("; without speculation: law")


def test_a_domain_that_straddles_its_floor_is_switched_off() -> None:
    made = result({"code": 0.75, "law": 0.57}, prompts=8)
    low = made.domains[1].figures.alpha
    assert low is not None
    assert low.low is not None
    assert low.low < 0.55 < (low.high or 0)
    assert set(judge(made, DEFAULT).switched_off) == {"law"}


def test_no_domain_left_fails() -> None:
    judgement = judge(result({"code": 0.3, "law": 0.35}), DEFAULT)
    assert (judgement.verdict, judgement.exit_code, judgement.kept) == ("fail", 1, ())
    assert (judgement.alpha, judgement.speedup) == (None, None)
    assert "no domain keeps speculation" in judgement.headline()


def test_below_the_release_floor_fails() -> None:
    judgement = judge(result({"code": 0.6}), DEFAULT)
    assert judgement.verdict == "fail"
    assert row(judgement, "release α").outcome == "fail"
    assert "below 0.65" in judgement.headline()


def test_an_interval_around_the_release_floor_decides_nothing() -> None:
    made = result({"code": 0.7}, prompts=12)
    judgement = judge(made, Gates(release_alpha=round(made.domains[0].figures.alpha.point, 3)))  # type: ignore[union-attr]
    assert (judgement.verdict, judgement.exit_code) == ("undecided", 6)
    assert "more prompts" in row(judgement, "release α").reason


@pytest.mark.parametrize(("floor", "outcome"), [("low", "pass"), ("high", "undecided")])
def test_an_end_on_the_floor_is_not_below_it(floor: str, outcome: str) -> None:
    made = result({"code": 0.75})
    alpha = made.domains[0].figures.alpha
    gates = Gates(release_alpha=getattr(alpha, floor), domain_alpha=0.1)
    assert row(judge(made, gates), "release α").outcome == outcome


def test_one_prompt_keeps_no_domain() -> None:
    judgement = judge(result({"code": 0.9}, prompts=1), DEFAULT)
    assert (judgement.verdict, judgement.kept) == ("undecided", ())
    assert "more prompts may show that code can" in judgement.headline()
    assert "[0.00, 1.00]" in judgement.switched_off["code"]


@pytest.mark.parametrize(
    ("mode", "differences", "outcome"),
    [
        ("near-tie", (), "pass"),
        ("near-tie", (("near-tie", 0.02),), "pass"),
        ("near-tie", (("near-tie", 0.02), ("real", 0.5)), "fail"),
        ("near-tie", (("real", None),), "fail"),
        ("near-tie", (("undiagnosed", None), ("near-tie", 0.02)), "undecided"),
        ("near-tie", (("undiagnosed", None), ("real", 0.5)), "fail"),
        ("exact", (), "pass"),
        ("exact", (("near-tie", 0.02),), "fail"),
        ("off", (("real", 0.5),), "not judged"),
    ],
)
def test_greedy_equality(mode: str, differences: tuple, outcome: str) -> None:  # type: ignore[type-arg]
    judgement = judge(result({"code": 0.8}, differences=differences), Gates(greedy_equality=mode))  # type: ignore[arg-type]
    found = row(judgement, "greedy equality", "code")
    assert found.outcome == outcome
    assert f"{60 - len(differences)} of 60 texts equal" in found.reason
    assert judgement.verdict == (outcome if outcome in ("fail", "undecided") else "pass")


def test_another_tolerance_judges_the_recorded_gaps_again() -> None:
    made = result({"code": 0.8}, differences=(("near-tie", 0.08),))
    assert judge(made, Gates(near_tie=0.1)).verdict == "pass"
    assert judge(made, Gates(near_tie=0.05)).verdict == "fail"


def test_a_wrong_text_counts_in_a_domain_without_speculation_too() -> None:
    judgement = judge(result({"law": 0.3, "code": 0.8}, differences=(("real", 1.0),)), DEFAULT)
    assert set(judgement.switched_off) == {"law"}
    assert judgement.verdict == "fail"


def test_sampled_answers_are_not_judged_for_equality() -> None:
    made = result({"code": 0.8}, exact=False, validation={"temperature": 0.7})
    found = row(judge(made, DEFAULT), "greedy equality", "code")
    assert (found.outcome, found.measured) == ("not judged", None)


@pytest.mark.parametrize(("floor", "verdict"), [(1.2, "pass"), (2.0, "fail"), (1.5, "undecided")])
def test_a_speed_floor_is_judged_by_the_interval(floor: float, verdict: str) -> None:
    assert judge(result({"code": 0.8}), Gates(min_speedup=floor)).verdict == verdict


def test_one_block_cannot_decide_about_speed() -> None:
    judgement = judge(result({"code": 0.8}, blocks=1), Gates(min_speedup=1.1))
    assert judgement.verdict == "undecided"
    assert "no interval" in row(judgement, "speed-up").reason


def test_a_load_that_was_never_reached_decides_nothing_about_speed() -> None:
    made = result({"code": 0.8}, validation={"concurrency": 64})
    found = row(judge(made, Gates(min_speedup=1.1)), "speed-up")
    assert found.outcome == "undecided"
    assert "64 in flight" in found.reason
    assert "never reached: a block had 5 requests" in found.reason
    assert judge(made, DEFAULT).verdict == "pass"


def test_speed_without_a_floor_is_reported_with_its_conditions() -> None:
    found = row(judge(result({"code": 0.8}, gain=1.5), DEFAULT), "speed-up")
    assert (found.outcome, found.measured) == ("not judged", pytest.approx(1.5, abs=0.05))
    for words in ("gates.min_speedup is unset", "1.5", "4 in flight", "K=4", "reference backend on cpu"):
        assert words in found.reason
    assert "shows that the pair works" not in found.reason


def test_a_slower_reference_pair_is_explained_by_its_own_times() -> None:
    """40 rounds of t tokens at 10 ms a token, twice as slow with speculation: a round must emit 2 t to pay."""
    found = row(judge(result({"code": 0.8}, gain=0.5), DEFAULT), "speed-up")
    assert "the reference backend shows that the pair works, not what it gains on a GPU" in found.reason
    rows = result({"code": 0.8}, gain=0.5).domains[0].rows
    tokens = sum(r.emitted or 0 for r in rows) / sum(r.rounds or 0 for r in rows)
    assert f"emitted {tokens:.2f} tokens" in found.reason
    assert f"must emit {2 * tokens:.2f} to pay" in found.reason


def test_a_slower_pair_on_a_gpu_is_not_excused() -> None:
    made = result({"code": 0.8}, gain=0.5, engine={"backend": "tensorrt"}, hardware={"gpu": "h100-80gb"})
    assert "shows that the pair works" not in row(judge(made, DEFAULT), "speed-up").reason


@pytest.mark.parametrize("code", ["counters.disagree", "speculation.not-running", "speculation.never-drafted"])
def test_broken_evidence_outweighs_everything(code: str) -> None:
    judgement = judge(with_problem(result({"code": 0.3}), code), DEFAULT)
    assert (judgement.verdict, judgement.exit_code) == ("invalid", 6)
    assert f"{code}: prompt code-0: no (3 times)" in judgement.headline()


@pytest.mark.parametrize(("severity", "verdict"), [("release", "invalid"), ("note", "pass")])
def test_prompts_that_no_user_writes_are_no_evidence_and_a_note_is_none_against_it(severity: str, verdict: str) -> None:
    problem = ProblemRow(code="dataset.synthetic", domain="", message="no", count=1, severity=severity)  # type: ignore[arg-type]
    assert judge(result({"code": 0.75}).model_copy(update={"problems": (problem,)}), DEFAULT).verdict == verdict


def test_a_result_that_is_marked_as_not_for_a_release_is_not_released() -> None:
    assert judge(result({"code": 0.75}).model_copy(update={"release_valid": False}), DEFAULT).verdict == "invalid"


def test_an_interrupted_measurement_is_judged_on_what_it_has_and_says_so() -> None:
    judgement = judge(result({"code": 0.75}).model_copy(update={"interrupted": True}), DEFAULT)
    assert judgement.verdict == "pass"
    assert any("interrupted" in r.reason for r in judgement.rows)


def test_a_draft_that_is_never_right_fails_and_says_so() -> None:
    made = result({"code": 0.0})
    assert [p.code for p in made.problems] == ["speculation.never-accepted"]
    judgement = judge(made, DEFAULT)
    assert judgement.verdict == "fail"
    assert any("none of" in r.reason and "accepted" in r.reason for r in judgement.rows)


def test_a_fail_outweighs_what_is_undecided() -> None:
    made = result({"code": 0.6}, differences=(("undiagnosed", None),))
    assert judge(made, DEFAULT).verdict == "fail"


@settings(max_examples=15, deadline=None)
@given(st.floats(0.3, 0.9), st.integers(1, 12), st.floats(0, 1), st.floats(0, 1))
def test_judging_twice_gives_the_same_and_the_rules_hold(
    alpha: float, prompts: int, release: float, domain: float
) -> None:
    made = result({"code": alpha, "law": 0.7}, prompts=prompts)
    gates = Gates(release_alpha=release, domain_alpha=domain)
    first = judge(made, gates)
    again = judge(ResultDocument.model_validate_json(made.model_dump_json()), gates)
    assert first == again
    assert set(first.kept) | set(first.switched_off) == {"code", "law"}
    if first.verdict == "pass":
        assert first.alpha is not None
        assert first.alpha.low is not None
        assert first.alpha.low >= release


def test_an_interval_that_rounds_onto_the_floor_shows_its_side() -> None:
    made = result({"code": 0.7})
    alpha = made.domains[0].figures.alpha
    assert alpha is not None
    assert alpha.low is not None
    judgement = judge(made, Gates(domain_alpha=round(alpha.low + 0.00005, 4)))
    assert f"[{alpha.low:.4f}" in judgement.switched_off["code"]
    released = judge(made, Gates(release_alpha=round(alpha.low + 0.00005, 4), domain_alpha=0.1))
    assert released.verdict == "undecided"
    assert f"[{alpha.low:.4f}" in released.headline()


def test_intervals_in_words() -> None:
    assert interval_text(Estimate(point=0.701, low=0.64, high=0.75, n=9)) == "0.70 [0.64, 0.75]"
    assert interval_text(Estimate(point=2, low=None, high=None, n=1)) == "2.00 [no interval]"
    assert interval_text(None) == "not measured"
