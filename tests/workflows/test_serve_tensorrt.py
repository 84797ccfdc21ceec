"""Serving TensorRT engines: refused where nothing runs them, else started through `mpirun` (a stand-in here)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.processes import eventually
from tests.triton.modelfolder import small_repository
from tests.triton.throwaway import IDLE, add_model, serving
from tests.workflows.pair import outputs, own_pair
from trtspec.cli._main import run
from trtspec.errors import MissingError
from trtspec.store import MANIFEST
from trtspec.triton import launch
from trtspec.triton.devices import Devices
from trtspec.triton.server import TritonServer
from trtspec.triton.stubs import running_models
from trtspec.workflows.serve import serving_on

MPIRUN = """#!/bin/sh
# A stand-in: runs the first process of the line, as mpirun's child, and hands SIGTERM on.
shift 3
"$@" &
child=$!
trap 'kill -TERM $child' TERM
wait $child
wait $child
"""
SPAWNS = Devices("orchestrator", True, 1, {"target": (0,), "draft": (0,)}, "as tests want it")


def with_mpirun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "mpirun").write_text(MPIRUN)
    (folder / "mpirun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_without_a_gpu_it_says_so_and_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = own_pair(tmp_path, "engine.backend=tensorrt")
    config.repository_dir.mkdir(parents=True)
    (config.repository_dir / MANIFEST).write_text('{"files": {}}')
    given = [word for change in [*outputs(tmp_path), "engine.backend=tensorrt"] for word in ("--set", change)]
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    assert run(["serve", str(tmp_path / "tiny.yaml"), *given]) == 3
    said = capsys.readouterr().err
    assert "need an NVIDIA GPU" in said
    assert "engine.backend: reference" in said


def test_what_a_gpu_host_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = small_repository(tmp_path / "r", backend="tensorrt")
    program = tmp_path / "triton" / "bin" / "tritonserver"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    config = own_pair(tmp_path, "engine.backend=tensorrt", f"serving.tritonserver={program}")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingError) as caught, serving_on(config, repository, print):
        pass
    assert caught.value.found == f"no mpirun on PATH, no tensorrtllm backend beside {program}"
    assert caught.value.exit_code == 3
    assert "launch.sh" in (caught.value.fix or "")


@pytest.mark.triton
def test_a_server_behind_mpirun_is_ready_watched_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of its models are found one level deeper, and nothing of it stays."""
    with_mpirun(tmp_path / "bin", monkeypatch)
    add_model(tmp_path / "models", "idle", IDLE)
    with TritonServer.start(
        tmp_path / "models", serving(), tmp_path / "log", environment=launch.environment(SPAWNS),
        through=lambda words: launch.command(SPAWNS, lambda _: words),
    ) as server:  # fmt: skip
        assert running_models(server.pid) == {"idle": 1}
        assert [model.state for model in server.models()] == ["READY"]
        server.check()
    assert eventually(lambda: not running_models(server.pid))
    assert not server.running
