"""The report for people: marks and fixes by subject, short, on narrow and wide pages."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.pairing.pairs import check, write_pair
from trtspec.config import load_config
from trtspec.pairing.check import check_pair
from trtspec.pairing.codes import CODES
from trtspec.pairing.findings import Finding, Severity, Verdict
from trtspec.pairing.report import SUBJECTS, UNKNOWN, brief, print_verdict, subject_of


def printed(verdict: Verdict, width: int = 110, verbose: bool = False, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, color_system="standard" if colour else None, force_terminal=colour
    )
    print_verdict(console, verdict, verbose=verbose)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def finding(code: str, severity: Severity = "info", message: str = "m", fix: str | None = None) -> Finding:
    return Finding(code, severity, "pair", message, fix)


def marks(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if re.match(r" [✗!✓-]  ", line)]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Verdict:
    """One error, one warning, weights of one model missing."""
    folder = tmp_path_factory.mktemp("faulty")
    write_pair(folder, target={"max_position_embeddings": 60}, draft={"vocab_size": 64})
    (folder / "draft" / "model.safetensors").unlink()
    return check(folder, checks={"cost_ratio": 0.3})


@pytest.mark.parametrize("width", [80, 110, 120, 200])
def test_marks_fixes_and_the_speed_up_fit_the_page(faulty: Verdict, width: int) -> None:
    text = printed(faulty, width)
    assert marks(text).count("✗") == sum(f.severity == "error" for f in faulty.findings) == 1
    assert marks(text).count("!") == sum(f.severity == "warning" for f in faulty.findings)
    flat = " ".join(text.split())
    assert "→ set engine.max_seq_len to 60 or less" in flat or width > 110
    assert "lengths.target-short" in flat
    assert "c = 0.300 (given as checks.cost_ratio" in flat
    assert "K=4*" in flat
    assert re.search(r"Verdict: fail \(1 error, \d warnings?, 1 not measured\)", flat)
    assert max(map(len, text.splitlines())) <= width


def test_on_a_wide_page_the_fix_stands_beside_its_finding(faulty: Verdict) -> None:
    line = next(line for line in printed(faulty, 160).splitlines() if "✗" in line)
    assert "made for 60 positions" in line
    assert "→ set engine.max_seq_len to 60" in line


def test_good_findings_share_one_line_a_subject(tmp_path: Path) -> None:
    write_pair(tmp_path)
    verdict = check(tmp_path)
    short, long = printed(verdict), printed(verdict, verbose=True)
    assert len(marks(short)) <= len(SUBJECTS)
    assert len(marks(long)) == len(verdict.findings) > len(marks(short))
    assert "lineage.alike" in long
    assert "lineage.alike" not in short


def test_the_shipped_pair_is_no_wall_of_text(tiny_config: Path) -> None:
    config = load_config(tiny_config, environ={})
    assert config.pair.target.path
    assert config.pair.draft.path
    text = printed(check_pair(config.pair.target.path, config.pair.draft.path, config), 100)
    head = text.partition("Expected speed-up")[0]
    assert len(head.splitlines()) <= 18


def test_every_code_has_a_subject() -> None:
    assert {code for code in CODES if not subject_of(finding(code))} == set()


def test_every_subject_is_used() -> None:
    assert {subject_of(finding(code)) for code in CODES} == set(SUBJECTS)


def test_errors_come_first_in_their_subject() -> None:
    findings = (finding("size.ratio"), finding("size.swapped", "error"), finding("size.ratio-outside", "warning"))
    assert marks(printed(Verdict((*findings, finding("size.not-measured")), {}))) == ["✗", "!", "✓", "-"]


def test_equal_news_of_both_models_is_told_once() -> None:
    both = tuple(Finding("weights.not-measured", "info", role, "m", brief="no weights") for role in ("target", "draft"))
    assert "weights of target and draft" in printed(Verdict(both, {}))
    good = tuple(Finding("config.published", "info", role, "m", brief="published") for role in ("target", "draft"))
    assert "target and draft: published" in printed(Verdict(good, {}))


def test_whatever_could_not_be_measured_has_a_name() -> None:
    unknown = {code for code in CODES if code.endswith(".not-measured")}
    assert {code.partition(".")[0] for code in unknown} == set(UNKNOWN)
    text = printed(Verdict(tuple(map(finding, sorted(unknown))), {}))
    assert marks(text) == ["-"]
    assert marks(printed(Verdict(tuple(map(finding, sorted(unknown))), {}), verbose=True)) == ["-"] * len(unknown)


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("all 9 ids (8 base) mean the same; good", "all 9 ids mean the same"),
        ("heads are 5 rows: the rest is padding", "heads are 5 rows"),
        ("x" * 100, "x" * 71 + "…"),
    ],
)
def test_brief(message: str, short: str) -> None:
    assert brief(message) == short


def test_many_draft_lengths_fit_the_page(tmp_path: Path) -> None:
    write_pair(tmp_path)
    speculation = {"max_draft_len": 128, "draft_len": 7}
    text = printed(check(tmp_path, speculation=speculation, checks={"cost_ratio": 1.5}))
    assert "K=7*" in text
    assert "never" in text
    assert max(map(len, text.splitlines())) <= 110


def test_markup_in_a_token_is_text() -> None:
    hostile = finding("vocab.ids-differ", "error", "id 1 is '[bold]' and '[/nope]'", "[red]x")
    assert "'[bold]' and '[/nope]'" in printed(Verdict((hostile,), {}))
    assert "'[bold]'" in printed(Verdict((finding("vocab.equal", message="a '[bold]' b"),), {}))


def test_colour_only_on_a_terminal(faulty: Verdict) -> None:
    assert "\x1b[31m" in printed(faulty, colour=True)
    assert "\x1b" not in printed(faulty)
