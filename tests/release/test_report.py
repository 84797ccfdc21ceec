"""Reports show every number with its conditions, and survive whatever a model writes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.release.full import full, hostile
from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.errors import EvidenceError
from trtspec.measurement.result import ResultDocument
from trtspec.measurement.resultfile import load_result
from trtspec.release.gates import judge
from trtspec.release.report import FILES, Report, load_any, load_report, report_schema, result_at, write_report
from trtspec.release.terminal import print_report

GATES = Gates()


def printed(made: ResultDocument, width: int = 160) -> str:
    out = Console(file=io.StringIO(), width=width, color_system=None)
    print_report(out, made, judge(made, GATES))
    text = out.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_files_hold_the_evidence_and_the_judgement(tmp_path: Path) -> None:
    made = result({"code": 0.75, "law": 0.35})
    path = write_report(tmp_path / "toy", made, judge(made, GATES), GATES)
    assert sorted(p.name for p in path.parent.iterdir()) == sorted(FILES)
    report = Report.model_validate_json(path.read_bytes())
    assert (report.version, report.result) == (2, made)
    assert judge(load_result(path.with_name("result.json")), report.gates) == report.judgement


def test_a_second_report_replaces_the_first_whole(tmp_path: Path) -> None:
    for alpha in (0.75, 0.3):
        made = result({"code": alpha})
        path = write_report(tmp_path, made, judge(made, GATES), GATES)
    assert json.loads(path.read_text())["judgement"]["verdict"] == "fail"
    assert "Fail: must not be released" in (tmp_path / "report.html").read_text()
    assert len(list(tmp_path.iterdir())) == len(FILES)


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = result({"code": 0.75})
    path = write_report(tmp_path, made, judge(made, GATES), GATES)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_room)
    with pytest.raises(OSError, match="No space"):
        write_report(tmp_path, made, judge(made, GATES), GATES)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert path.exists()


def test_hostile_text_is_written_and_read_again(tmp_path: Path) -> None:
    made = hostile()
    path = write_report(tmp_path, made, judge(made, GATES), GATES)
    assert load_report(path).result == made


def test_the_same_result_gives_the_same_files(tmp_path: Path) -> None:
    made = full()
    for name in ("a", "b"):
        write_report(tmp_path / name, made, judge(made, GATES), GATES)
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_result_is_found_however_it_is_named(tmp_path: Path) -> None:
    made = result({"code": 0.75})
    path = write_report(tmp_path, made, judge(made, GATES), GATES)
    for place in (tmp_path, path, tmp_path / "result.json"):
        assert result_at(place) == made
    assert isinstance(load_any(tmp_path), Report)
    path.unlink()
    assert load_any(tmp_path) == made


@pytest.mark.parametrize("text", ["", "{", "[]", '{"judgement": 1}', '{"judgement": 1, "version": 1}'])
def test_what_is_no_result_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(EvidenceError, match="not a re"):
        load_any(path)


def test_a_folder_without_a_result_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"neither report\.json nor result\.json"):
        load_any(tmp_path)


def test_the_terminal_shows_domains_gates_conditions_and_the_verdict() -> None:
    text = printed(result({"code": 0.75, "law": 0.35}))
    assert "toy: K=4, greedy, tokens acceptance, 4 in flight, streamed, reference backend, bfloat16, cpu" in text
    code, law = (next(line.split() for line in text.splitlines() if line.startswith(d)) for d in ("code ", "law "))
    assert (code[1], code[-2], code[-1]) == ("60", "60/60", "K=4")
    assert law[-1] == "off"
    assert "accepted ÷ tested" in text
    assert text.rstrip().endswith("PASS: speculation is released for code; without speculation: law")


def test_what_was_not_measured_is_a_dash() -> None:
    made = result({"code": 0.75}, exact=False, blocks=0)
    (code,) = [line.split() for line in printed(made).splitlines() if line.startswith("code ")]
    assert code[5:9] == ["–"] * 4
    assert "–" not in code[:5]


def test_a_log_of_110_columns_loses_nothing() -> None:
    text = printed(result({"python-source": 0.75}), width=110)
    assert max(map(len, text.splitlines())) <= 110
    assert "…" not in text
    assert any(line.startswith("python-source ") and line.split()[-1] == "K=4" for line in text.splitlines())
    for heading in ("drafts", "[95 %]", "without"):
        assert heading in text


def test_sixty_columns_lose_nothing_either() -> None:
    text = printed(full(), width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "…" not in text
    squeezed = " ".join(text.split())
    for part in ("tokens/s without 97", "greedy equal 58/60", "drafts off", "release α: release", "0.75 [0.74, 0.76]"):
        assert part in squeezed, part


def test_a_terminal_obeys_no_text_of_a_model() -> None:
    text = printed(hostile(), width=80)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_schema_is_published_and_names_units() -> None:
    schema = report_schema()
    assert schema["properties"].keys() == {"version", "result", "gates", "judgement"}  # type: ignore[attr-defined]
    assert "accepted ÷ tested" in json.dumps(schema, ensure_ascii=False)
