"""Each injected fault ends in the right error and exit code, leaves nothing that looks finished, and the next run goes
on where this one stopped."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.conftest import Machine
from tests.contract.standins.build import recorded
from tests.contract.standins.install import Installed
from tests.workflows.pair import outputs, own_pair
from trtspec.cli._main import run
from trtspec.store import read_manifest

pytestmark = pytest.mark.torch
FAULTS = {
    "crash@10": "made to fail after 10",
    "crash@50": "made to fail after 50",
    "crash@90": "made to fail after 90",
    "enospc@10": "space",
    "enospc@50": "space",
    "sigkill@50": "SIGKILL",
    "hang@50": "did not end within",
    "no-files": "config.json",
    "other-limits": "max_seq_len",
    "no-paged-fmha": "use_paged_context_fmha",
    "truncated-config": "record cannot be read",
    "traceback-exit-0": "one rank failed",
    "empty-engine": "rank1.engine",
}
"""Fault → what the message has to name."""


def words(folder: Path, made: Installed, *more: str) -> list[str]:
    """Arguments of `trtspec engine` for the tiny pair, target on two ranks, with a stand-in's installation."""
    changes = [
        "engine.backend=tensorrt", "hardware.gpu=h100-80gb", "hardware.count=8", "pair.target.parallelism={tensor: 2}",
        f"engine.tools.trtllm_build={made.bin / 'trtllm-build'}", f"engine.tensorrt_llm_version={made.version}",
        *outputs(folder), *more,
    ]  # fmt: skip
    return ["engine", str(folder / "tiny.yaml"), *(word for change in changes for word in ("--set", change))]


def finished(folder: Path) -> set[str]:
    """Results that a later run, or a person, would take for whole."""
    every = [*folder.glob("engines/*/*/engine"), *folder.glob("engines/*/*/checkpoint"), *folder.glob("model_repo/*")]
    return {f"{p.parent.name}/{p.name}" for p in every if p.is_dir()}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_fault(
    fault: str, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_pair(tmp_path)
    made = machine("1.2.1", STANDIN_FAULT=fault, STANDIN_FAULT_WHEN="draft_tokens_external")
    timeout = ["engine.timeout=2"] if fault.startswith("hang") else []
    assert run(words(tmp_path, made, *timeout)) == 4
    said = capsys.readouterr().err
    assert FAULTS[fault] in said
    assert "engine.log" in said
    assert "Traceback (most recent call last)" not in said.replace("| Traceback", "")
    assert finished(tmp_path) == {"target/checkpoint", "draft/checkpoint", "draft/engine"}
    assert not list(tmp_path.rglob("*.partial-*"))
    assert (tmp_path / "engines/tiny/target/engine.log").stat().st_size > 0

    monkeypatch.delenv("STANDIN_FAULT")
    before = len(made.built())
    assert run(words(tmp_path, made)) == 0
    assert len(made.built()) == before + 1  # the target's alone; both checkpoints and the draft's engine stayed
    assert finished(tmp_path) == {"target/checkpoint", "draft/checkpoint", "draft/engine", "target/engine"}
    assert recorded(tmp_path / "engines/tiny/target/engine")["build_config"]["max_draft_len"] == 8
    assert read_manifest(tmp_path / "engines/tiny/target/engine") is not None


def test_a_failed_target_does_not_stay_after_an_older_one(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build for other limits fails: the older engine is whole, and still not taken for the new one."""
    own_pair(tmp_path)
    made = machine("1.2.1")
    assert run(words(tmp_path, made)) == 0
    monkeypatch.setenv("STANDIN_FAULT", "crash@90")
    longer = ["engine.max_seq_len=900"]
    assert run(words(tmp_path, made, *longer)) == 4
    monkeypatch.delenv("STANDIN_FAULT")
    assert run(words(tmp_path, made, *longer)) == 0
    for role, extra in (("target", 8), ("draft", 0)):
        assert recorded(tmp_path / f"engines/tiny/{role}/engine")["build_config"]["max_seq_len"] == 900 + extra


def test_a_killed_trtspec_takes_the_builder_with_it(machine: Machine, tmp_path: Path) -> None:
    own_pair(tmp_path)
    made = machine("1.2.1", STANDIN_FAULT="hang@50")
    command = [sys.executable, "-m", "trtspec", *words(tmp_path, made)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert _within(60, lambda: len(made.built()) == 2)
    finally:
        child.kill()
        child.wait()
    assert finished(tmp_path) == {"target/checkpoint", "draft/checkpoint"}
    here = str(tmp_path).encode()

    def gone() -> bool:
        return not any(here in _bytes(p) and b"trtllm-build" in _bytes(p) for p in Path("/proc").glob("[0-9]*/cmdline"))

    assert _within(20, gone)


def _within(seconds: float, happens: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not happens() and time.monotonic() < until:
        time.sleep(0.05)
    return happens()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
