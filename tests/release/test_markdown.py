"""The short report: tables that are tables, text that stays text, never too long for a comment."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.release.full import full, hostile
from tests.release.made import result
from trtspec.config.gates import Gates
from trtspec.measurement.result import ResultDocument
from trtspec.release.gates import judge
from trtspec.release.markdown import MOST_SIGNS, escape, markdown

GATES = Gates()


def text_of(made: ResultDocument, **how: str) -> str:
    return markdown(made, judge(made, GATES), **how)


def tables(text: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def columns(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line))


def test_it_says_the_verdict_its_reason_and_the_gates() -> None:
    text = text_of(full())
    assert text.startswith("### ✓ toy: pass\n\n**PASS: speculation is released for code")
    for part in ("#### Gates", "release α", r"0.75 \[0.74, 0.76\]", "○ off", "First differences of greedy texts: 2"):
        assert part in text, part
    assert text.rstrip().endswith("Details: `report.html` beside this file.")
    assert "[report](https://ci.example/1)" in text_of(full(), details="https://ci.example/1")


@pytest.mark.parametrize("made", [full(), hostile()], ids=["full", "hostile"])
def test_every_table_is_one(made: ResultDocument) -> None:
    found = tables(text_of(made))
    assert len(found) == 3
    for table in found:
        assert len({columns(line) for line in table}) == 1, table


def test_what_blocks_comes_first() -> None:
    text = text_of(result({"code": 0.75, "law": 0.3}, differences=(("real", 0.5),)))
    outcomes = [re.split(r"(?<!\\)\|", line)[3].split()[-1] for line in tables(text)[1][2:]]
    assert outcomes[:2] == ["fail", "off"]


def test_nobody_is_called_and_nothing_is_linked() -> None:
    text = text_of(hostile())
    assert not re.search(r"@\w", text)
    assert "http://" not in text
    assert "](javascript" not in text.replace(r"\]", "")
    assert not re.search(r"(?<!\\)<(?!/?(details|summary|sub)>)", text)
    assert "\x1b" not in text


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=400))
def test_any_text_stays_one_cell(text: str) -> None:
    shown = escape(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(\\\\)*[|<`*_\[\]]", shown)
    assert len(shown) <= 300 * 3


def test_it_fits_a_comment_whatever_was_measured() -> None:
    names = {f"domain-{i}-" + "x" * 200: 0.75 for i in range(300)}
    made = result({"code": 0.75})
    (only,) = made.domains
    many = made.model_copy(update={"domains": tuple(only.model_copy(update={"domain": n}) for n in names)})
    text = text_of(many)
    assert len(text) <= MOST_SIGNS
    assert "more in the report" in text
    assert text.startswith("### ")


def test_a_part_that_is_too_long_is_left_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtspec.release.markdown.MOST_SIGNS", 1500)
    text = text_of(full())
    assert len(text) <= 1501
    assert "A part was left out" in text
    for table in tables(text):
        assert len({columns(line) for line in table}) == 1
