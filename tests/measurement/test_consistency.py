"""A document that was edited by hand is found out, wherever the edit is; one that was measured never is accused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.measurement.fake import FakeClient, prompts
from tests.release.full import full
from tests.release.made import config, result
from trtspec.cli._main import run
from trtspec.errors import EvidenceError
from trtspec.measurement.consistency import contradictions
from trtspec.measurement.exactness import compare
from trtspec.measurement.load import measure
from trtspec.measurement.resultfile import load_result
from trtspec.measurement.summary import build_result
from trtspec.release.gates import judge
from trtspec.release.report import load_report, write_report

Edit = Callable[[Any], object]


def edited(tmp_path: Path, edit: Edit, **how: Any) -> Path:
    document = result({"code": 0.75, "law": 0.35}, **how).model_dump(mode="json")
    edit(document)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("agrees", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_was_measured_agrees_with_itself(agrees: float, temperature: float) -> None:
    asked = prompts(16) + prompts(9, "law")
    how = config(validation={"concurrency": 2, "warmup": 1, "temperature": temperature})
    client = FakeClient(agrees=agrees)
    samples = measure(lambda: client, asked, how.validation, 4)
    found = compare(client, asked, samples, temperature=temperature, near_tie=0.1)
    assert list(contradictions(build_result(how, asked, samples, found))) == []


def test_made_documents_agree_too() -> None:
    for made in (full(), result({"a": 0.7}, differences=(("real", 3.0), ("near-tie", 0.01))), result({"a": 0.0})):
        assert list(contradictions(made)) == []


def row(document: Any, at: int = 0) -> Any:
    return document["domains"][0]["rows"][at]


def raised(document: Any) -> None:
    """One prompt with more accepted tokens, and all other counters of it to match."""
    one = row(document)
    one["accepted"] += 3
    one["tested"] += 3
    one["drafted"] += 3
    one["emitted"] += 3
    one["speculative"]["output_tokens"] += 3


def worse_prompts_left_out(document: Any) -> None:
    for domain in document["domains"]:
        domain["rows"] = [r for r in domain["rows"] if r["accepted"] > 0.7 * r["tested"]]
        domain.update(prompts=len(domain["rows"]), exactness=None)


def faster(document: Any) -> None:
    for block in document["domains"][0]["figures"]["speculative"]["blocks"]:
        block["wall_seconds"] /= 3


def difference_hidden(document: Any) -> None:
    document["domains"][0]["exactness"].update(differences=[], real=0)


def failed_unnamed(document: Any) -> None:
    for at in range(10):
        row(document, at).update(target_only=None, equal=None)


def softened(document: Any) -> None:
    document["problems"].append(
        {"code": "counters.server", "domain": "", "message": "", "count": 1, "severity": "note"}
    )


EDITS: dict[str, Edit] = {
    "rows.0.tested": lambda d: row(d).update(tested=row(d)["accepted"] - 1),
    "rows.0.emitted": lambda d: row(d).update(emitted=row(d)["emitted"] + 2),
    "rows.0.accepted": lambda d: row(d).update(accepted=0),
    "figures.histogram": raised,
    "overall.histogram": lambda d: d["overall"]["histogram"][0][4].__setitem__(4, 10**6),
    "overall.alpha": lambda d: d["overall"]["alpha"].update(point=0.99),
    "figures.alpha": lambda d: d["domains"][1]["figures"]["alpha"].update(point=0.66),
    "figures.per_position.0": lambda d: d["domains"][0]["figures"]["per_position"].__setitem__(0, 0.99),
    "figures.acceptance_length": lambda d: d["domains"][0]["figures"].update(acceptance_length=4.9),
    "domains.0.rows": lambda d: d["domains"][0]["rows"].append(row(d)),
    "domains.0.figures.histogram": worse_prompts_left_out,
    "figures.speculative.wall_seconds": faster,
    "figures.speedup": lambda d: d["domains"][0]["figures"]["speedup"].update(point=3.0),
    "exactness.differences": difference_hidden,
    "unusable": failed_unnamed,
    "problems.0.severity": softened,
    "problems": lambda d: d.update(counters={"outcome": "disagree", "reason": "", "rows": []}),
    "looks": lambda d: d.update(looks={"budget": 500, "at": [120]}),
    "quality.0.n": lambda d: d.update(
        quality=[{"domain": "", "check": "x", "n": 10**9, "target_only": 0.5, "speculative": 0.9}]
    ),
    "quality.0.only_target_only": lambda d: d.update(
        quality=[
            {
                "domain": "", "check": "x", "n": 100, "target_only": 0.9, "speculative": 0.5,
                "only_target_only": 0, "only_speculative": 0,
            }
        ]
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", EDITS)
def test_an_edit_is_found_and_named(key: str, tmp_path: Path) -> None:
    path = edited(tmp_path, EDITS[key], differences=(("real", 2.0),))
    with pytest.raises(EvidenceError, match="contradicts itself") as found:
        load_result(path)
    assert key in found.value.what
    assert found.value.expected
    assert "measure again" in str(found.value)


def test_rounds_longer_than_k_are_those_of_another_k(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="rounds of 4 draft tokens, expected at most 2"):
        load_result(edited(tmp_path, lambda d: d["conditions"].update(k=2)))


NOT_NUMBERS: dict[str, Edit] = {
    "rows.0.accepted": lambda d: row(d).update(accepted=-1),
    "rows.0.tested": lambda d: row(d).update(tested=10**400),
    "blocks.0.wall_seconds": lambda d: d["overall"]["speculative"]["blocks"][0].update(wall_seconds=1e308),
    "conditions.concurrency": lambda d: d["conditions"].update(concurrency=0),
    "looks.at": lambda d: d.update(looks={"budget": 300, "at": list(range(1, 300))}),
    "memory.total_bytes": lambda d: d.update(memory={"device": "host", "total_bytes": 0, "used_bytes": 0}),
    "quality.0.n": lambda d: d.update(
        quality=[{"domain": "", "check": "x", "n": -4, "target_only": 0.5, "speculative": 0.9}]
    ),
    "figures.alpha.level": lambda d: d["domains"][0]["figures"]["alpha"].update(level=5.0),
}


@pytest.mark.parametrize("verb", ["gate", "report", "compare", "policy"])
@pytest.mark.parametrize("key", NOT_NUMBERS)
def test_what_no_measurement_gives_is_one_line(
    key: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = edited(tmp_path, NOT_NUMBERS[key])
    more = {"report": ["--out", str(tmp_path / "out")], "compare": [str(path)]}.get(verb, [])
    assert run([verb, str(path), *more]) == 6
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert key in said[0]
    assert not (tmp_path / "out").exists()


def test_a_verdict_that_its_rows_do_not_give(tmp_path: Path) -> None:
    made = result({"code": 0.5})
    how = config().gates
    path = write_report(tmp_path, made, judge(made, how), how)
    document = json.loads(path.read_text())
    assert document["judgement"]["verdict"] != "pass"
    document["judgement"]["verdict"] = "pass"
    path.write_text(json.dumps(document))
    with pytest.raises(EvidenceError, match=r"judgement.verdict \(found pass"):
        load_report(path)
