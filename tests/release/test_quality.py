"""Rules on the quality of answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.measurement.result import QualityRow
from trtspec.release.gates import Judgement, judge


def judged(row: dict[str, Any], **gates: Any) -> Judgement:
    found = QualityRow.model_validate({"domain": "code", "check": "reference, number", "n": 200} | row)
    return judge(result({"code": 0.75}).model_copy(update={"quality": (found,)}), Gates(**gates))


def outcomes(judgement: Judgement) -> dict[str, str]:
    return {r.rule: r.outcome for r in judgement.rows if r.rule.startswith("quality")}


@pytest.mark.parametrize(
    ("lost", "won", "outcome"),
    [(3, 3, "pass"), (0, 0, "pass"), (10, 6, "undecided"), (20, 2, "fail"), (2, 20, "pass")],
)
def test_a_drop_against_the_target_alone(lost: int, won: int, outcome: str) -> None:
    row = {"target_only": 0.8, "speculative": 0.8 + (won - lost) / 200}
    found = judged(row | {"only_target_only": lost, "only_speculative": won})
    assert outcomes(found) == {"quality.floor": "not judged", "quality.drop": outcome}
    assert found.verdict == outcome


@pytest.mark.parametrize(("floor", "outcome"), [(0.7, "pass"), (0.8, "undecided"), (0.9, "fail")])
def test_a_floor(floor: float, outcome: str) -> None:
    same = {"target_only": 0.8, "speculative": 0.8, "only_target_only": 0, "only_speculative": 0}
    assert outcomes(judged(same, min_quality=floor))["quality.floor"] == outcome


def test_a_command_that_says_no() -> None:
    found = judged({"target_only": None, "speculative": None, "says_no": True, "check": "score"})
    assert outcomes(found)["quality.command"] == "fail"
    assert "`score` says no" in found.headline()


def test_a_floor_for_what_nothing_checks_is_undecided() -> None:
    assert judge(result({"code": 0.75}), Gates(min_quality=0.5)).verdict == "undecided"
    assert judged({"target_only": None, "speculative": None}, min_quality=0.5).verdict == "undecided"
