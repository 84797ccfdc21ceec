"""Sweeping what a dead trtspec left, and nothing else."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.processes import line, python
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


def test_what_a_number_means_depends_on_the_boot_and_the_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines may share a temporary folder, and the first namespace has the same number on all."""
    name = f"trtspec-{leftovers.new_name().split('-')[1]}-{dead_pid()}-0123abcd"
    (tmp_path / "shm" / f"{name}-1").touch()
    real = Path.read_bytes
    boot = Path("/proc/sys/kernel/random/boot_id")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Path, "read_bytes", lambda path: b"another machine" if path == boot else real(path))
        assert leftovers.sweep() == []
    assert leftovers.sweep() == [name]


SWEEPS = """
import os, sys, tempfile
from pathlib import Path
from trtspec.triton import leftovers
leftovers.SHARED_MEMORY = Path(sys.argv[1], "shm")
tempfile.tempdir = str(Path(sys.argv[1], "tmp"))
if len(sys.argv) > 2:
    os.setuid(int(sys.argv[2]))
print(leftovers.sweep(), flush=True)
"""
OWNS = (
    SWEEPS
    + """
name = leftovers.new_name()
(leftovers.SHARED_MEMORY / f"{name}-1").touch()
leftovers.private_folder(name)
print(name, flush=True)
sys.stdin.read()
"""
)
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """The two folders, as containers with one /dev/shm see them: open to every user."""
    for folder in (*tmp_path.parents[:3], tmp_path, tmp_path / "shm", tmp_path / "tmp"):
        if folder.owner() == tmp_path.owner() and folder != Path(folder.anchor):
            folder.chmod(folder.stat().st_mode | 0o055)
    for folder in (tmp_path / "shm", tmp_path / "tmp"):
        folder.chmod(0o777)  # and without the sticky bit: nothing but the rule keeps them from deleting
    return tmp_path


def swept(folder: Path, *, before: Sequence[str] = (), user: str = "") -> list[str]:
    """What a sweep removes in a process of its own."""
    with python(SWEEPS, folder, *filter(None, [user]), before=before) as sweeper:
        return list(ast.literal_eval(line(sweeper)))


@contextlib.contextmanager
def owner_of_a_name(folder: Path, before: Sequence[str] = ()) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process that lives and has made a region and a folder, with their name."""
    with python(OWNS, folder, before=before, stdin=subprocess.PIPE) as owner:
        assert line(owner) == "[]"
        yield line(owner), owner
        owner.kill()


def can_have_a_namespace() -> bool:
    return bool(shutil.which("unshare")) and subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_have_a_namespace(), reason="needs the right to make a process-id namespace")
class TestContainersThatShareTheirSharedMemory:
    def test_one_never_sweeps_what_lives_outside(self, shared: Path) -> None:
        with owner_of_a_name(shared) as (name, owner):
            # No process has the owner's number in there.
            assert swept(shared, before=CONTAINER) == []
            assert os.listdir(shared / "shm") == [f"{name}-1"]
            owner.kill()
            owner.wait()
            assert swept(shared, before=CONTAINER) == []
            assert swept(shared) == [name]

    def test_nobody_outside_sweeps_what_lives_in_one(self, shared: Path) -> None:
        with owner_of_a_name(shared, CONTAINER) as (name, _):
            # As if its number in there were one that nobody has outside.
            free = f"{name.rpartition('-')[0].rpartition('-')[0]}-{dead_pid()}-0123abcd"
            os.rename(shared / "shm" / f"{name}-1", shared / "shm" / f"{free}-1")
            assert swept(shared) == []
            assert swept(shared, before=CONTAINER) == []
            assert os.listdir(shared / "shm") == [f"{free}-1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_never_sweeps_what_lives(shared: Path) -> None:
    with owner_of_a_name(shared) as (name, _):
        assert swept(shared, user="65534") == []
        assert os.listdir(shared / "shm") == [f"{name}-1"]
        assert swept(shared) == []
