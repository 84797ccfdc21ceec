"""trtspec report: the files again, judged as they were or anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.release.made import result
from trtspec.cli._main import run
from trtspec.config.gates import Gates
from trtspec.release.gates import judge
from trtspec.release.report import FILES, load_report, write_report


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Reports judged by gates that are not the default ones."""
    made, gates = result({"code": 0.75}), Gates(release_alpha=0.5)
    return write_report(tmp_path / "old", made, judge(made, gates), gates).parent


def test_a_report_is_shown_as_it_was_judged(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: (old / name).read_bytes() for name in FILES}
    assert run(["report", str(old), "--out", str(tmp_path / "new"), "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["verdict"] == "pass"
    assert [Path(name).name for name in document["files"]] == list(FILES)
    assert {name: (tmp_path / "new" / name).read_bytes() for name in FILES} == before
    assert "PASS" in captured.err


def test_it_is_judged_anew_where_that_is_asked_for(old: Path, tmp_path: Path) -> None:
    rules = tmp_path / "gates.yaml"
    rules.write_text("release_alpha: 0.99\n")
    assert run(["report", str(old / "result.json"), "--out", str(tmp_path / "bare")]) == 0
    assert load_report(tmp_path / "bare" / "report.json").gates == Gates()
    assert run(["report", str(old), "--gates", str(rules)]) == 0  # whatever the verdict
    assert load_report(old / "report.json").judgement.verdict == "fail"
    assert "Fail: must not be released" in (old / "report.html").read_text()


def test_the_address_of_the_page_is_in_the_short_text(old: Path) -> None:
    assert run(["report", str(old), "--details", "https://ci.example.org/run/17"]) == 0
    assert "[report](https://ci.example.org/run/17)" in (old / "report.md").read_text()


def test_reports_of_a_release_are_not_overwritten(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (old / "record.json").write_text("{}")
    assert run(["report", str(old)]) == 2
    assert "belong to a release record" in capsys.readouterr().err
    assert run(["report", str(old / "nothing.json")]) == 2
