"""trtspec lint: a configuration, a repository, or two engines; exit 0 and 1; one document on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.triton import llmapirepo
from tests.triton.modelfolder import made_engine, small_repository
from tests.workflows.pair import own_pair
from trtspec.cli._main import run

Out = pytest.CaptureFixture[str]


def document(capsys: Out) -> Any:
    return json.loads(capsys.readouterr().out)


def test_two_engines(tmp_path: Path, capsys: Out) -> None:
    for role in ("target", "draft"):
        made_engine(tmp_path / role, role)  # type: ignore[arg-type]
    engines = ["--target-engine", str(tmp_path / "target"), "--draft-engine", str(tmp_path / "draft")]
    assert run(["lint", *engines]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out
    made_engine(tmp_path / "draft", "draft", **{"model.vocab_size": 256})
    assert run(["lint", *engines]) == 0
    capsys.readouterr()
    assert run(["lint", *engines, "--acceptance", "logits", "--json"]) == 1
    found = document(capsys)
    assert found["sound"] is False
    assert [problem["code"] for problem in found["problems"]] == ["engine.logits-width"]
    assert found["problems"][0]["fix"]


def test_an_engine_without_a_record(tmp_path: Path, capsys: Out) -> None:
    made_engine(tmp_path / "target", "target")
    (tmp_path / "draft").mkdir()
    engines = ["--target-engine", str(tmp_path / "target"), "--draft-engine", str(tmp_path / "draft")]
    assert run(["lint", *engines, "--json"]) == 1
    assert [problem["code"] for problem in document(capsys)["problems"]] == ["engine.unreadable"]


def test_a_repository_with_engines_elsewhere(tmp_path: Path, capsys: Out) -> None:
    repository = small_repository(tmp_path, backend="tensorrt")
    (tmp_path / "target").rename(tmp_path / "moved")
    assert run(["lint", "--repository", str(repository)]) == 1
    assert "repository.engine" in capsys.readouterr().out
    moved = ["--target-engine", str(tmp_path / "moved")]
    assert run(["lint", "--repository", str(repository), *moved]) == 0


def test_a_repository_of_the_llm_api(tmp_path: Path, capsys: Out) -> None:
    repository = llmapirepo.written(tmp_path)
    assert run(["lint", "--repository", str(repository), "--json"]) == 0
    assert document(capsys)["problems"] == []
    (repository / "tensorrt_llm" / "1" / "model.py").unlink()
    assert run(["lint", "--repository", str(repository), "--json"]) == 1
    assert [problem["code"] for problem in document(capsys)["problems"]] == ["llmapi.model"]


def test_a_configuration_that_was_changed_after_the_build(tmp_path: Path, capsys: Out) -> None:
    config = own_pair(tmp_path, "engine.backend=tensorrt")
    for role in ("target", "draft"):
        folder = config.engine_dir(role)  # type: ignore[arg-type]
        folder.parent.mkdir(parents=True)
        room = 8 if role == "target" else 0
        made_engine(folder, role, max_seq_len=1024 + room, max_input_len=1024)  # type: ignore[arg-type]
    given = ["lint", str(tmp_path / "tiny.yaml"), "--json", "--set", f"output.engines={tmp_path / 'engines'}",
             "--set", f"output.model_repo={tmp_path / 'model_repo'}"]  # fmt: skip
    assert run(given) == 0
    assert document(capsys)["problems"] == []
    assert run([*given, "--set", "engine.max_batch_size=4"]) == 0
    found = document(capsys)["problems"]
    assert [problem["code"] for problem in found] == ["config.limits", "config.limits"]
    assert "max_batch_size 8 (asked for 4)" in found[0]["message"]


USAGE = [
    [],
    ["--target-engine", "{there}"],
    ["--target-engine", "{absent}", "--draft-engine", "{there}"],
    ["--repository", "{absent}"],
    ["{config}", "--repository", "{there}"],
    ["--repository", "{there}", "--set", "name=x"],
    ["{config}", "--set", "output.model_repo={absent}", "--set", "output.engines={absent}/e"],
]


@pytest.mark.parametrize("words", USAGE)
def test_bad_usage(words: list[str], tmp_path: Path, tiny_config: Path, capsys: Out) -> None:
    places = {"there": tmp_path, "absent": tmp_path / "absent", "config": tiny_config}
    assert run(["lint", *(word.format(**places) for word in words)]) == 2
    assert capsys.readouterr().err.startswith("trtspec: ")
