"""Sweeping what a dead trtspec left, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trtspec.supervisor import remove
from trtspec.triton import leftovers


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shm", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_only_what_belongs_to_a_dead_process_of_this_space_is_swept(tmp_path: Path) -> None:
    mine = leftovers.new_name()
    space = mine.split("-")[1]
    dead = f"trtspec-{space}-{dead_pid()}-0123abcd"
    foreign = f"trtspec-{int(space, 16) + 1:x}-{dead_pid()}-0123abcd"
    for name in (mine, dead, foreign, "triton_python_backend_shm_region_1", "trtspec-notes"):
        (tmp_path / "shm" / f"{name}-9f0e").write_bytes(b"x")
    (tmp_path / "tmp" / dead / "backends").mkdir(parents=True)
    assert leftovers.sweep() == [dead]
    assert dead not in " ".join(os.listdir(tmp_path / "shm") + os.listdir(tmp_path / "tmp"))
    assert len(os.listdir(tmp_path / "shm")) == 4
    assert leftovers.sweep() == []


def test_a_name_is_unique_and_its_patterns_match_only_its_own(tmp_path: Path) -> None:
    first, second = leftovers.new_name(), leftovers.new_name()
    folder = leftovers.private_folder(first)
    (tmp_path / "shm" / f"{second}-1").touch()
    assert folder.stat().st_mode & 0o777 == 0o700
    remove(leftovers.patterns(first))
    assert not folder.exists()
    assert (tmp_path / "shm" / f"{second}-1").exists()


def test_no_shared_memory_folder_is_nothing_to_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(leftovers, "SHARED_MEMORY", tmp_path / "absent")
    assert leftovers.sweep() == []
