"""trtspec migrate and trtspec export as commands: files, documents, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.conftest import PROJECT
from trtspec.cli._main import run

LLAMA = str(PROJECT / "configs" / "llama70b.yaml")


def test_migrate_prints_the_file_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", LLAMA]) == 0
    captured = capsys.readouterr()
    assert yaml.safe_load(captured.out)["engine"]["backend"] == "pytorch"
    assert "Lost:" in captured.err


def test_migrate_writes_a_new_file_and_never_over_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new.yaml"
    assert run(["migrate", LLAMA, "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"config", "changed", "lost", "written"}
    assert yaml.safe_load(out.read_text()) == document["config"]
    assert run(["migrate", LLAMA, "--out", str(out)]) == 2
    assert "a file already" in capsys.readouterr().err
    assert run(["migrate", str(out)]) == 2
    assert "already" in capsys.readouterr().err


def test_export_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "vllm", LLAMA]) == 0
    assert "exec vllm serve" in capsys.readouterr().out
    out = tmp_path / "serve.sh"
    assert run(["export", "vllm", LLAMA, "--out", str(out), "--json", "--set", "speculation.draft_len=3"]) == 0
    assert json.loads(capsys.readouterr().out)["speculative_config"]["num_speculative_tokens"] == 3
    assert out.read_text().startswith("#!/bin/sh")
    assert run(["export", "vllm", LLAMA, "--vllm", "0.12.0"]) == 2


def test_export_needs_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "triton", LLAMA]) == 2
