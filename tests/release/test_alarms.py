"""Silent death: each alarm sees its case in the counters and texts alone, and is quiet over a sound pair."""

from __future__ import annotations

from typing import Any

import pytest

from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.measurement.result import PromptRow, ResultDocument
from trtspec.release.alarms import alarms
from trtspec.release.gates import judge


def changed(made: ResultDocument, **of_each: Any) -> ResultDocument:
    """With other counters in each row; `repeats` is of the speculative answers. The problems that were found go."""
    (domain,) = made.domains
    repeats = of_each.pop("repeats", None)

    def row(index: int, old: PromptRow) -> PromptRow:
        spec = old.speculative
        assert spec is not None
        loops = spec.model_copy(update={"repeats": None if repeats is None else repeats(index)})
        return old.model_copy(update={"speculative": loops, **of_each})

    rows = tuple(row(i, r) for i, r in enumerate(domain.rows))
    return made.model_copy(update={"domains": (domain.model_copy(update={"rows": rows}),), "problems": ()})


def fired(made: ResultDocument, **gates: Any) -> dict[str, str]:
    return {row.rule: row.outcome for row in alarms(made, Gates(**gates))}


def test_a_sound_pair_is_quiet() -> None:
    assert fired(result({"code": 0.75})) == {"alarm.none": "pass"}
    assert fired(changed(result({"code": 0.75}), repeats=lambda i: i % 4 == 0)) == {"alarm.none": "pass"}


@pytest.mark.parametrize(
    ("counters", "rule", "outcome", "verdict"),
    [
        ({"drafted": 0, "tested": 0, "accepted": 0}, "alarm.never-drafted", "invalid", "invalid"),
        ({"drafted": 40, "tested": 10, "accepted": 0}, "alarm.never-accepted", "fail", "fail"),
        ({"drafted": None, "tested": None, "accepted": None}, "alarm.not-running", "invalid", "invalid"),
    ],
)
def test_a_dead_draft_is_noticed_though_nothing_else_says_so(
    counters: dict[str, Any], rule: str, outcome: str, verdict: str
) -> None:
    dead = changed(result({"code": 0.75}), **counters)
    assert fired(dead)[rule] == outcome
    assert judge(dead, Gates()).verdict == verdict


def test_every_token_accepted() -> None:
    """Right only where the draft is the target; with looping texts it is what broken logits look like."""
    perfect = {"drafted": 40, "tested": 40, "accepted": 40}
    sound = changed(result({"code": 0.75}), **perfect, repeats=lambda _: False)
    assert fired(sound) == {"alarm.all-accepted": "pass"}
    assert fired(changed(result({"code": 0.75}), **perfect, repeats=lambda i: i % 2 == 0)) == {
        "alarm.degenerate": "invalid"
    }


def test_texts_that_loop() -> None:
    loops = changed(result({"code": 0.75}), repeats=lambda i: i % 10 < 6)
    assert fired(loops) == {"alarm.degenerate": "invalid"}
    assert fired(loops, max_degenerate=0.7) == {"alarm.none": "pass"}
    assert fired(loops, max_degenerate=None) == {"alarm.none": "pass"}
    assert judge(loops, Gates()).exit_code == 6
