"""trtspec doctor as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.environment import machines
from trtspec import environment
from trtspec.cli._main import run
from trtspec.environment import Environment, Host, detect

LLAMA = str(PROJECT / "configs" / "llama70b.yaml")
TINY = str(PROJECT / "configs" / "tiny.yaml")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Callable[[Path], Host]], None]:
    """Makes this machine look like another."""

    def become(make: Callable[[Path], Host]) -> None:
        found: Environment = detect(host=make(tmp_path))
        monkeypatch.setattr(environment, "detect", lambda **asked: found)

    return become


Here = Callable[[Callable[[Path], Host]], None]


def test_a_machine_with_nothing_is_told_what_to_do(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    here(machines.bare)
    assert run(["doctor"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    for word in ("no tensorrt_llm package", "nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3", "no NVIDIA driver"):
        assert word in out
    assert "pip install 'trtspec[local]'" in out
    assert "no backend is open: `check`, `plan` and `select` work here all the same" in out


def test_a_machine_with_everything(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    here(machines.ngc_26_05)
    assert run(["doctor", LLAMA]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "8 × NVIDIA H100 80GB HBM3, compute capability 9.0, 79.6 GiB" in out
    assert "triton 26.05: TensorRT-LLM 1.2.1, TensorRT 10.14.1.48" in out
    assert "open with TensorRT-LLM 1.2.1" in out
    assert "llama70b (tensorrt) can be built on this machine" in out


def test_a_configuration_for_another_machine(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    here(machines.laptop)
    assert run(["doctor", LLAMA]) == 3
    assert "cannot be built on this machine" in capsys.readouterr().out
    assert run(["doctor", TINY]) == 0
    # Its build only writes files, as `build` itself shows.
    assert run(["doctor", TINY, "--set", "engine.backend=pytorch"]) == 0


def test_one_document_on_stdout(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    here(machines.newer)
    assert run(["doctor", "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert [way["state"] for way in document["ways"]] == ["closed", "open", "build-only"]
    assert "usable here: pytorch, reference" in captured.err


def test_the_reference_engine_alone_is_no_way_to_serve_a_pair(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    here(machines.laptop)
    assert run(["doctor"]) == 3
    assert "only the reference engine (configs/tiny.yaml)" in " ".join(capsys.readouterr().out.split())


def test_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--set", "name=x"]) == 2
    assert "none is given" in capsys.readouterr().err
    assert run(["doctor", "nowhere.yaml"]) == 2


def test_doctor_imports_nothing_heavy() -> None:
    code = (
        "import sys; from trtspec.cli._main import run; "
        f"code = run(['doctor', {LLAMA!r}]); heavy = ('torch', 'tensorrt_llm', 'transformers', 'tritonclient'); "
        "print('HEAVY', code in (0, 3), *[m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip().splitlines()[-1] == "HEAVY True"
