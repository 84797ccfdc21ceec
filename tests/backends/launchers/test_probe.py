"""The probe on a node: what it finds, and a sentence for each thing that is not as planned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trtspec.backends.launchers import probe


def run(
    folder: Path, *words: str, smi: str = "NVIDIA H100 80GB HBM3, 9.0\n", tool: bool = True
) -> tuple[int, list[str]]:
    """The probe with imitated tools and package metadata."""
    for name, version in (("tensorrt_llm", "1.2.1"), ("tensorrt", "10.14.1.48")):
        info = folder / "site" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "bin").mkdir(exist_ok=True)
    programs = {"nvidia-smi": f"#!/bin/sh\nprintf '%s' '{smi}'\n"} | ({"trtllm-build": "#!/bin/sh\n"} if tool else {})
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(folder / "site")}
    done = subprocess.run(
        [sys.executable, probe.__file__, *words], capture_output=True, text=True, env=environment, check=False
    )
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


PLANNED = ("--tensorrt-llm", "1.2.1", "--tensorrt", "10.14", "--sm", "90")


def test_a_node_as_planned(tmp_path: Path) -> None:
    code, lines = run(tmp_path, *PLANNED)
    assert code == 0
    (line,) = lines
    found = json.loads(line.removeprefix("trtspec-probe: "))
    assert found == {
        "tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48", "sm": ["90"], "gpus": ["NVIDIA H100 80GB HBM3"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "smi", "tool", "message"),
    [
        (("--tensorrt-llm", "1.1.0"), "NVIDIA H100, 9.0\n", True, "has TensorRT-LLM 1.2.1, the engine was planned"),
        (("--tensorrt", "10.1"), "NVIDIA H100, 9.0\n", True, "has TensorRT 10.14.1.48, the engine was"),
        (PLANNED, "NVIDIA A100-SXM4-80GB, 8.0\n", True, "GPUs are SM 80, the engine was planned for SM 90"),
        (PLANNED, "", True, "no GPU can be seen"),
        (PLANNED, "NVIDIA H100, 9.0\n", False, "there is no trtllm-build here"),
    ],
)  # fmt: skip
def test_nodes_that_are_other(tmp_path: Path, words: tuple[str, ...], smi: str, tool: bool, message: str) -> None:
    code, lines = run(tmp_path, *words, smi=smi, tool=tool)
    assert code == 1
    assert any(message in line for line in lines)
