"""The page in a real browser: on a phone, on a desk, in the dark, on paper, and with hostile text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.release.browser import browser, probe, start
from tests.release.full import full, hostile
from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.measurement.result import ResultDocument
from trtspec.release.gates import judge
from trtspec.release.html.page import html

GATES = Gates(min_speedup=1.2)
READABLE = 4.5
"""WCAG 2.2, 1.4.3: contrast of text with its ground."""
SEEN = 3.0
"""WCAG 2.2, 1.4.11: contrast of the parts of a chart."""


@pytest.fixture(autouse=True)
def _browser() -> None:
    browser()


def page(made: ResultDocument) -> str:
    return html(made, judge(made, GATES))


@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (1200, False)])
def test_it_fits_is_readable_and_asks_for_nothing(tmp_path: Path, width: int, dark: bool) -> None:
    found = probe(tmp_path, page(full()), width, dark=dark)
    assert found["client"] == width
    assert found["scroll"] <= width, found["beyond"]
    assert found["beyond"] == []
    assert found["contrast"]["ratio"] >= READABLE, found["contrast"]
    assert found["shapes"] >= SEEN
    assert (sum(found["ground"][:3]) < 150) == dark
    assert found["levels"][0] == 1
    assert found["levels"].count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in zip(found["levels"], found["levels"][1:], strict=False))
    assert (found["unnamed"], found["scripts"], found["requests"], found["lang"]) == (0, 0, [], "en")
    assert found["smallest"] >= 11
    assert found["stacked"] == (width < 700)


@pytest.mark.parametrize("alpha", [0.5, 0.66])
def test_every_verdict_is_readable(tmp_path: Path, alpha: float) -> None:
    made = result({"code": alpha}, prompts=12, differences=(("undiagnosed", None),))
    for dark in (False, True):
        found = probe(tmp_path, page(made), 360, dark=dark)
        assert found["contrast"]["ratio"] >= READABLE, found["contrast"]


def test_hostile_text_runs_nothing_and_breaks_no_line(tmp_path: Path) -> None:
    found = probe(tmp_path, page(hostile()), 360)
    assert (found["pwned"], found["scripts"], found["requests"]) == (None, 0, [])
    assert found["scroll"] <= 360, found["beyond"]


def test_it_prints_on_a4(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(full()), encoding="utf-8")
    paper = tmp_path / "report.pdf"
    start(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}", (tmp_path / "report.html").as_uri())
    data = paper.read_bytes()
    assert data.startswith(b"%PDF")
    boxes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox\s*\[([^\]]+)\]", data)}
    assert len(boxes) == 1
    _, _, wide, high = boxes.pop()
    assert (wide, high) == pytest.approx((595.3, 841.9), abs=1.5)
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 8
