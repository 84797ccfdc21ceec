"""Verdicts, codes and the report for people."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.conftest import PROJECT
from tests.pairing.pairs import check, write_pair
from trtspec.pairing.codes import CODES
from trtspec.pairing.findings import Finding, Severity, Verdict
from trtspec.pairing.report import print_verdict


def finding(severity: Severity, code: str = "size.ratio") -> Finding:
    return Finding(code, severity, "pair", "m")


@pytest.mark.parametrize(
    ("severities", "verdict"),
    [([], "pass"), (["info"], "pass"), (["info", "warning"], "warn"), (["warning", "error", "info"], "fail")],
)
def test_only_the_verdict_decides(severities: list[Severity], verdict: str) -> None:
    assert Verdict(tuple(map(finding, severities)), {}).verdict == verdict


def test_undocumented_codes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"size\.ration"):
        finding("info", "size.ration")


def test_every_documented_code_is_used() -> None:
    source = "".join(p.read_text() for p in (PROJECT / "trtspec" / "pairing").glob("*.py") if p.name != "findings.py")
    used = set(re.findall(r'"([a-z]+\.[a-z-]+)"', source))
    assert set(CODES) - used == set()


def printed(verdict: Verdict, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_verdict(console, verdict)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_report_shows_marks_fixes_and_the_speed_up(tmp_path: Path) -> None:
    write_pair(tmp_path, target={"max_position_embeddings": 60}, draft={"vocab_size": 64})
    (tmp_path / "draft" / "model.safetensors").unlink()
    text = printed(check(tmp_path, checks={"cost_ratio": 0.3}))
    lines = text.splitlines()
    assert [line.split()[0] for line in lines if re.match(r" [✗!✓-] ", line)] == ["✗", "!", "✓", "✓", "✓", "✓", "-"]
    assert "→ set engine.max_seq_len to 60 or less" in text
    assert "c = 0.300 (given as checks.cost_ratio)" in text
    assert "K=4*" in text
    assert "Verdict: fail (1 error, 1 warning, 1 not measured)" in text
    assert max(map(len, lines)) <= 110


def test_many_draft_lengths_fit_the_page(tmp_path: Path) -> None:
    write_pair(tmp_path)
    speculation = {"max_draft_len": 128, "draft_len": 7}
    text = printed(check(tmp_path, speculation=speculation, checks={"cost_ratio": 1.5}))
    assert "K=7*" in text
    assert "never" in text
    assert max(map(len, text.splitlines())) <= 110


def test_markup_in_a_token_is_text(tmp_path: Path) -> None:
    hostile = Finding("vocab.ids-differ", "error", "pair", "id 1 is '[bold]' and '[/nope]'", "[red]x")
    assert "'[bold]' and '[/nope]'" in printed(Verdict((hostile,), {}))
