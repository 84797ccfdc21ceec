"""Reports show every number with its conditions, and survive whatever a model writes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.release.made import result
from trtspec.config.validation import Gates
from trtspec.measurement.result import ResultDocument, load_result
from trtspec.release.gates import judge
from trtspec.release.report import Report, markdown, print_report, report_schema, write_report

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
    assert sorted(p.name for p in path.parent.iterdir()) == ["report.json", "report.md", "result.json"]
    report = Report.model_validate_json(path.read_bytes())
    assert (report.version, report.result) == (1, made)
    assert judge(load_result(path.with_name("result.json")), report.gates) == report.judgement


def test_a_second_report_replaces_the_first_whole(tmp_path: Path) -> None:
    for alpha in (0.75, 0.3):
        made = result({"code": alpha})
        path = write_report(tmp_path, made, judge(made, GATES), GATES)
    assert json.loads(path.read_text())["judgement"]["verdict"] == "fail"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = result({"code": 0.75})
    path = write_report(tmp_path, made, judge(made, GATES), GATES)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write_report(tmp_path, made, judge(made, GATES), GATES)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert path.exists()


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


def test_model_text_is_no_markup() -> None:
    made = result({"code": 0.75}, differences=(("near-tie", 0.0213),))
    text = markdown(made, judge(made, GATES))
    (line,) = [line for line in text.splitlines() if "near-tie |" in line]
    assert r"'a\|b'" in line
    assert "0.0213" in line
    table = text.split("## First differences")[1].split("##")[0].strip().splitlines()[2:]
    widths = {row.replace(r"\|", "").count("|") for row in table}
    assert widths == {10}


def test_markdown_has_the_gates_latency_and_positions() -> None:
    made = result({"code": 0.75, "law": 0.35})
    text = markdown(made, judge(made, GATES))
    assert text.startswith("# toy: pass\n")
    for part in ("## Gates", "## Latency", "## P(position accepted)", "## Environment", "release α", "python 3."):
        assert part in text
    assert "| code | speculative | 20 |" in text


def test_the_schema_is_published_and_names_units() -> None:
    schema = report_schema()
    assert schema["properties"].keys() == {"version", "result", "gates", "judgement"}  # type: ignore[attr-defined]
    assert "accepted ÷ tested" in json.dumps(schema, ensure_ascii=False)
