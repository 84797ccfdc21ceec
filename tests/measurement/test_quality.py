"""Quality: references in three forms, and a command of the user's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trtspec.config.quality import Quality
from trtspec.errors import EvidenceError
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.quality import assess, matches
from trtspec.measurement.records import Answer, Samples


def samples(*answered: tuple[str | None, str, str]) -> Samples:
    """(reference, target-only, speculative) of each prompt."""
    answers = []
    for i, (reference, plain, spec) in enumerate(answered):
        prompt = Prompt(f"p{i}", "math", "How many?", 20, reference)
        answers += [Answer(prompt, "target-only", text=plain), Answer(prompt, "speculative", text=spec)]
    return Samples(tuple(answers), ())


@pytest.mark.parametrize(
    ("kind", "answer", "reference", "right"),
    [
        ("exact", " 42\n", "42", True),
        ("exact", "Forty two", "forty two", False),
        ("words", "Forty-two, I think!", "forty two i THINK", True),
        ("words", "Größe", "GRÖSSE", True),
        ("words", "a b", "b a", False),
        ("number", "3 apples and 4 pears make 7 fruits.", "#### 7", True),
        ("number", "It costs $1,234.50", "1234.5", True),
        ("number", "-0", "0", True),
        ("number", "-7", "7", False),
        ("number", "none", "none", False),
        ("exact", "", "", False),
    ],
)
def test_forms(kind: str, answer: str, reference: str, right: bool) -> None:
    assert matches(kind, answer, reference) is right


def test_both_modes_are_held_against_the_references(tmp_path: Path) -> None:
    asked = samples(("7", "so 7", "so 7"), ("8", "8", "9"), ("9", "1", "9"), ("5", "4", "4"), (None, "1", "2"))
    (row,) = assess(Quality(reference="number"), asked, tmp_path / "log")
    assert (row.domain, row.n, row.target_only, row.speculative) == ("math", 4, 0.5, 0.5)
    assert (row.only_target_only, row.only_speculative) == (1, 1)


def test_without_references_nothing_is_said(tmp_path: Path) -> None:
    assert assess(Quality(reference="exact"), samples((None, "a", "a")), tmp_path / "log") == ()
    assert assess(Quality(), samples(("a", "a", "a")), tmp_path / "log") == ()


SCORER = """
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
share = {mode: sum(r[mode] == r["reference"] for r in rows) / len(rows) for mode in ("target_only", "speculative")}
json.dump(share, open(sys.argv[2], "w"))
sys.exit(int(sys.argv[3]))
"""


def command(tmp_path: Path, code: str, exit_code: int = 0) -> Quality:
    program = tmp_path / "score.py"
    program.write_text(code)
    return Quality(command=(sys.executable, str(program), "{answers}", "{result}", str(exit_code)), timeout=30.0)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_command_of_the_users_own(tmp_path: Path, exit_code: int) -> None:
    (row,) = assess(command(tmp_path, SCORER, exit_code), samples(("ä", "ä", "ä"), ("b", "b", "x")), tmp_path / "log")
    assert (row.target_only, row.speculative, row.n, row.says_no) == (1.0, 0.5, 2, exit_code == 1)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit(3)", "exit 3"),
        ("import sys; open(sys.argv[2], 'w').write('[1]')", "wrote no result"),
        ("import sys; open(sys.argv[2], 'w').write('{\"speculative\": 80}')", "wrote no result"),
    ],
)
def test_a_command_that_fails_is_neither_right_nor_wrong(tmp_path: Path, code: str, words: str) -> None:
    with pytest.raises(EvidenceError, match=words):
        assess(command(tmp_path, code), samples(("a", "a", "a")), tmp_path / "log")


def test_a_command_that_says_only_yes(tmp_path: Path) -> None:
    (row,) = assess(command(tmp_path, "pass"), samples(("a", "a", "a")), tmp_path / "log")
    assert (row.target_only, row.speculative, row.says_no) == (None, None, False)


def test_a_command_that_never_ends(tmp_path: Path) -> None:
    hung = command(tmp_path, "import time; time.sleep(60)").model_copy(update={"timeout": 0.5})
    with pytest.raises(EvidenceError, match=r"did not end within 0\.5 s"):
        assess(hung, samples(("a", "a", "a")), tmp_path / "log")


def test_a_command_without_a_place_for_the_answers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must name \{answers\}"):
        Quality(command=("score",))
