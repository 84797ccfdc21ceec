"""Against a baseline: what may be compared, and when a pair got worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.simulated import Counts, Population, document
from benchmarks.statistics import Scenario, verdicts
from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.errors import ConfigError
from trtspec.measurement.result import DatasetRow, ResultDocument
from trtspec.release.baseline import differences, mismatches
from trtspec.release.gates import judge
from trtspec.release.rows import GateRow

DATA = DatasetRow(domain="code", file="code.jsonl", sha256="ab" * 32, prompts=60, available=60)


def measured(alpha: float = 0.75, **changes: Any) -> ResultDocument:
    conditions = changes.pop("conditions", {})
    made = result({"code": alpha})
    return made.model_copy(
        update={"datasets": (DATA,), "conditions": made.conditions.model_copy(update=conditions), **changes}
    )


def rows(judgement_of: ResultDocument, baseline: ResultDocument, **how: Any) -> dict[tuple[str, str], GateRow]:
    gates = how.pop("gates", Gates())
    return {(r.rule, r.subject): r for r in judge(judgement_of, gates, baseline, **how).rows}


def simulated(alpha: float, seed: int = 0, prompts: int = 100, domains: int = 1) -> ResultDocument:
    """The same prompts for every seed; `seed` draws their rounds."""
    made: dict[str, Counts] = {}
    for i in range(domains):
        asked = Population(0.75).prompts(np.random.default_rng(i), prompts)
        made[f"d{i}"] = Population(0.75, shift=np.log(alpha / (1 - alpha) / 3)).counts(
            np.random.default_rng([seed, i]), *asked
        )
    return document(made)


def test_the_same_conditions_can_be_compared() -> None:
    assert mismatches(measured(), measured()) == ()
    assert rows(measured(), measured())["baseline.comparable", "baseline"].outcome == "pass"


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"conditions": {"k": 5}}, "k", "k is 4, was 5"),
        ({"conditions": {"temperature": 0.7}}, "temperature", "temperature is 0.0, was 0.7"),
        ({"conditions": {"gpu": "h100-80gb"}}, "gpu", "gpu is cpu, was h100-80gb"),
        ({"conditions": {"concurrency": 8}}, "concurrency", "concurrency is 4, was 8"),
        ({"environment": {"tensorrt-llm": "1.2.0"}}, "tensorrt-llm", "tensorrt-llm is not there, was 1.2.0"),
        (
            {"datasets": (DATA.model_copy(update={"sha256": "cd" * 32}),)},
            "datasets",
            "were of code.jsonl (cdcdcdcdcdcd)",
        ),
    ],
)
def test_each_mismatch_is_named_and_can_be_allowed(change: dict[str, Any], key: str, words: str) -> None:
    before = measured(**change)
    if "environment" in change:
        before = before.model_copy(update={"environment": measured().environment | change["environment"]})
    assert any(words in sentence for sentence in differences(measured(), before))
    judgement = judge(measured(), Gates(), before)
    assert (judgement.verdict, judgement.exit_code) == ("invalid", 6)
    assert words in judgement.headline()
    assert f"--allow-different {key}" in judgement.headline()
    found = rows(measured(), before, allow_different=(key,))
    assert found["baseline.comparable", "baseline"].outcome == "pass"
    assert words in found["baseline.comparable", "baseline"].reason
    assert ("regression.alpha", "release") in found


def test_versions_are_allowed_together_and_unknown_names_are_refused() -> None:
    before = measured(environment=measured().environment | {"triton": "2.51", "tokenizer": "sha256:0"})
    assert judge(measured(), Gates(), before, allow_different=("versions",)).verdict == "pass"
    with pytest.raises(ConfigError, match="no such condition"):
        judge(measured(), Gates(), before, allow_different=("gpus",))


def test_what_measures_and_the_draft_itself_may_differ() -> None:
    before = measured(
        environment=measured().environment
        | {"python": "3.9", "draft engine key": "x", "repository key": "y", "model config tensorrt_llm_bls": "z"}
    )
    assert differences(measured(), before) == ()


def test_prompts_of_which_nothing_is_known_are_not_the_same() -> None:
    bare = measured(datasets=())
    nameless = tuple(
        d.model_copy(update={"rows": tuple(r.model_copy(update={"sha256": ""}) for r in d.rows)}) for d in bare.domains
    )
    bare = bare.model_copy(update={"domains": nameless})
    assert differences(bare, bare) == ("which prompts of code were asked is not recorded",)


def test_a_pair_that_is_no_worse_passes_and_one_that_is_fails() -> None:
    baseline = simulated(0.75)
    same, worse = (rows(simulated(alpha, seed=1), baseline) for alpha in (0.75, 0.65))
    good, bad = (found["regression.alpha", "release"] for found in (same, worse))
    assert good.outcome == "pass"
    assert "100 prompts asked in both runs" in good.reason
    assert (bad.outcome, bad.limit) == ("fail", 0.05)
    assert bad.measured == pytest.approx(0.1, abs=0.03)
    assert "it is worse for certain" in bad.reason


def test_few_prompts_decide_nothing() -> None:
    lax = Gates(domain_alpha=0.1)
    found = rows(simulated(0.72, 1, prompts=12), simulated(0.75, prompts=12), gates=lax)
    assert found["regression.alpha", "release"].outcome == "undecided"


def test_each_domain_is_judged_and_its_no_is_held_to_a_stricter_level() -> None:
    found = rows(simulated(0.66, 1, domains=3), simulated(0.75, domains=3))
    subjects = [subject for rule, subject in found if rule == "regression.alpha"]
    assert subjects == ["release", "d0", "d1", "d2"]
    alone = rows(simulated(0.66, 1), simulated(0.75))["regression.alpha", "release"]
    among = found["regression.alpha", "d0"]
    assert alone.measured == among.measured
    assert alone.high == among.high
    assert (among.low or 0.0) < (alone.low or 0.0)


def test_a_domain_that_is_switched_off_now_and_was_not_before_is_a_regression() -> None:
    gates = Gates(domain_alpha=0.66)
    judgement = judge(simulated(0.6, 1, domains=2), gates, simulated(0.75, domains=2))
    assert set(judgement.switched_off) == {"d0", "d1"}
    assert {r.subject for r in judgement.rows if r.rule == "regression.alpha" and r.outcome == "fail"} >= {"d0", "d1"}


def test_length_and_speed_are_judged_where_asked() -> None:
    quick, slow = measured(), result({"code": 0.75}, gain=1.2).model_copy(update={"datasets": (DATA,)})
    gates = Gates(max_speedup_drop=0.1, max_length_drop=0.1)
    found = rows(slow, quick, gates=gates)
    assert found["regression.length", "release"].outcome == "pass"
    speed = found["regression.speedup", "release"]
    assert (speed.outcome, speed.measured) == ("fail", pytest.approx(0.2, abs=0.01))
    assert rows(quick, slow, gates=gates)["regression.speedup", "release"].outcome == "pass"
    assert rows(slow, quick)["regression.speedup", "release"].outcome == "not judged"


def test_a_quantized_draft_far_below_its_twin_fails() -> None:
    judgement = judge(simulated(0.66, 1), Gates(), twin=simulated(0.75))
    (row,) = [r for r in judgement.rows if r.rule == "twin.alpha"]
    assert (row.outcome, judgement.verdict) == ("fail", "fail")
    assert judge(simulated(0.75, 1), Gates(), twin=simulated(0.75)).verdict == "pass"


RUNS = 60


def test_with_the_default_budget_a_drop_fails_and_no_change_passes() -> None:
    """The short form of `scripts/statistics`: stopping as it goes, the whole judge; 60 runs each."""
    dropped, _ = verdicts(Scenario((0.05,)), RUNS, seed=1)
    assert dropped["fail"] >= 0.95 * RUNS - 4  # of 60 runs with 95 %, 53 or more
    same, measured_share = verdicts(Scenario((0.0,)), RUNS, seed=2)
    assert same["fail"] <= 2
    assert same["undecided"] <= 0.1 * RUNS + 4
    assert measured_share < 0.9
