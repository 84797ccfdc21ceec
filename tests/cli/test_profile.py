"""trtspec profile on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.workflows.pair import SHIPPED
from trtspec.cli._main import run

pytestmark = pytest.mark.torch
PAIR = ["--target", str(SHIPPED / "tiny/target"), "--draft", str(SHIPPED / "tiny/draft")]
PROMPTS = SHIPPED / "tiny" / "prompts" / "type-stubs.jsonl"


def test_two_folders_and_a_file_of_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--limit", "2", "--max-tokens", "8", "--set", "engine.compute_dtype=float32"]
    assert run(["profile", *PAIR, "--dataset", f"{PROMPTS}:type-stubs", *few, "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert [d["domain"] for d in document["domains"]] == ["type-stubs"]
    assert document["path"] == str(tmp_path / "reports" / "target+draft".replace("+", "-") / "profile.json")
    assert Path(document["path"]).is_file()
    assert "tokens a round" in said.err


def test_another_draft_does_not_replace_the_pairs_own_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["profile", str(SHIPPED / "tiny.yaml"), "--limit", "1", "--max-tokens", "6"]
    assert run([*line, "--draft", str(SHIPPED / "tiny/target"), "--temperature", "0.7"]) == 0
    folder = tmp_path / "reports" / "tiny"
    assert not (folder / "profile.json").exists()
    assert len(list((folder / "profiles").glob("target-*.json"))) == 1
    assert "rejection rule" in capsys.readouterr().out


def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile"]) == 2
    assert run(["profile", *PAIR, "--dataset", "absent.jsonl:x"]) == 2
    assert "no such prompts file for the domain 'x'" in capsys.readouterr().err
    assert run(["profile", *PAIR]) == 2
    assert "validation.datasets" in capsys.readouterr().err
