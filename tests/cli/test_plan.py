"""trtspec plan as a command: exit codes, one document, nothing heavy imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from trtspec.cli._main import run

LLAMA = str(PROJECT / "configs" / "llama70b.yaml")


def test_a_plan_is_printed_and_exits_with_0(tiny_config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(tiny_config)]) == 0
    assert "Plan of tiny" in capsys.readouterr().out


def test_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", LLAMA, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert set(document) == {"name", "backend", "check", "stages", "hardware", "memory", "economics"}
    assert document["memory"]["kv_cache"]["target"]["max_tokens_in_paged_kv_cache"] > 0
    assert "Plan of llama70b" in captured.err


def test_a_pair_that_does_not_fit_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "pair.target.parallelism.tensor=1", "--set", "hardware.gpu=l4"]
    assert run(["plan", LLAMA, *arguments]) == 1
    assert "memory.too-large" in capsys.readouterr().out


def test_an_unknown_gpu_is_bad_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", LLAMA, "--set", "hardware.gpu=h100x"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_plan_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from trtspec.cli._main import run; "
        f"code = run(['plan', {LLAMA!r}]); "
        "print('HEAVY', code, *[m for m in ('torch', 'transformers', 'tritonclient', 'modelopt') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip().splitlines()[-1] == "HEAVY 0"
