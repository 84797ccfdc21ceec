"""trtspec gate: exit codes, the document, and the same verdict for the same file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.release.made import result
from trtspec.cli._main import run
from trtspec.config import load_gates
from trtspec.config.gates import Gates
from trtspec.errors import ConfigError

Out = pytest.CaptureFixture[str]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_text(result({"code": 0.75}).model_dump_json())
    return path


def test_exit_codes(tmp_path: Path, good: Path, capsys: Out) -> None:
    rules = tmp_path / "gates.yaml"
    assert run(["gate", str(good)]) == 0
    assert "PASS: speculation is released for code" in capsys.readouterr().out
    rules.write_text("release_alpha: 0.9\ndomain_alpha: 0.5\n")
    assert run(["gate", str(good), "--gates", str(rules)]) == 1
    rules.write_text("gates:\n  max_ttft_p50: 0.1\n")
    assert run(["gate", str(good), "--gates", str(rules)]) == 6
    assert run(["gate", str(tmp_path / "none.json")]) in (2, 6)
    assert run(["gate", str(good), "--allow-different", "gpu"]) == 2


def test_one_document_and_the_same_one_again(good: Path, capsys: Out) -> None:
    texts = []
    for _ in range(2):
        assert run(["gate", str(good), "--json"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    found = json.loads(texts[0])
    assert (found["verdict"], found["gates"]["release_alpha"]) == ("pass", 0.65)
    assert {row["rule"] for row in found["judgement"]["rows"]} >= {
        "evidence",
        "alarm.none",
        "release.alpha",
        "equality",
    }


def test_a_baseline(tmp_path: Path, good: Path, capsys: Out) -> None:
    other = tmp_path / "before.json"
    other.write_text(good.read_text().replace('"k":4', '"k":5'))
    assert run(["gate", str(good), "--baseline", str(good)]) == 0
    assert "α against baseline" in capsys.readouterr().out
    assert run(["gate", str(good), "--baseline", str(other)]) == 6
    assert "k is 4, was 5" in capsys.readouterr().out
    assert run(["gate", str(good), "--baseline", str(other), "--allow-different", "k"]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("release_alfa: 0.7\n", "gates.yaml:1: unknown key gates.release_alfa; did you mean 'release_alpha'?"),
        ("gates:\n  near_tie: -1\n", "gates.yaml:2: gates.near_tie"),
        ("- 1\n", "not a mapping"),
        ("gates: [1]\n", "gates: must be a block of keys"),
    ],
)
def test_a_fault_in_the_rules_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "gates.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_gates(path)
    assert words in str(raised.value)


def test_an_empty_block_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "gates.yaml"
    path.write_text("gates:\n")
    assert load_gates(path) == Gates()
