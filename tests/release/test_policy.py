"""The policy file says what the judgement decided, and is written only for a pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.release.made import result
from trtspec.config.validation import Gates
from trtspec.errors import EvidenceError
from trtspec.release.gates import judge
from trtspec.release.policy import policy_document, write_policy


def test_a_switched_off_domain_drafts_nothing_and_says_why(tmp_path: Path) -> None:
    made = result({"code": 0.75, "law": 0.35})
    judgement = judge(made, Gates())
    path = tmp_path / "1" / "policy.json"
    write_policy(path, made, judgement)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "default": {"draft_len": 4},
        "tasks": {"law": {"draft_len": 0, "reason": judgement.switched_off["law"]}},
        "by_concurrency": [],
    }
    assert "α" in path.read_text()


def test_where_all_keep_speculation_the_default_is_enough() -> None:
    made = result({"code": 0.75})
    assert policy_document(made, judge(made, Gates()))["tasks"] == {}


@pytest.mark.parametrize(("above", "verdict"), [(0.25, "fail"), (0.0, "undecided")])
def test_no_policy_follows_from_anything_but_a_pass(tmp_path: Path, above: float, verdict: str) -> None:
    made = result({"code": 0.7}, prompts=12)
    alpha = made.domains[0].figures.alpha
    assert alpha is not None
    judgement = judge(made, Gates(release_alpha=round(alpha.point + above, 3)))
    assert judgement.verdict == verdict
    path = tmp_path / "policy.json"
    path.write_text("the one in force")
    with pytest.raises(EvidenceError, match="passed validation"):
        write_policy(path, made, judgement)
    assert path.read_text() == "the one in force"
