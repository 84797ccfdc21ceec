"""Finding the processes of the models."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import eventually, mentioning, python
from trtspec.triton.stubs import PROGRAM, WAIT4, Abandoned, is_alive, running_models


def start(folder: Path, program: str) -> subprocess.Popen[bytes]:
    """A process with the command line of a model's stub, if `program` is the stub's name."""
    model = folder / "1" / "model.py"
    model.parent.mkdir(parents=True, exist_ok=True)
    model.write_text("import time; time.sleep(60)")
    return subprocess.Popen([f"/b/{program}", str(model), "shm", "more"], executable=sys.executable)


def test_live_children_that_are_stubs_are_counted_by_model(tmp_path: Path) -> None:
    children = [start(tmp_path / name, PROGRAM) for name in ("a", "b c", "b c")]
    children.append(start(tmp_path / "other", "python"))
    try:
        assert eventually(lambda: sum(running_models(os.getpid()).values()) == 3)
        assert running_models(os.getpid()) == {"a": 1, "b c": 2}
        assert running_models(os.getppid()) == {}
        children[1].kill()
        # Not waited for: a zombie does not count.
        assert eventually(lambda: running_models(os.getpid()) == {"a": 1, "b c": 1})
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_this_process_is_alive_and_an_ended_one_is_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    assert is_alive(os.getpid())
    assert eventually(lambda: not is_alive(child.pid))  # a zombie until it is waited for
    child.wait()
    assert not is_alive(child.pid)


WAITS = """
import sys
from pathlib import Path
from tests.triton.test_stubs import PROGRAM, start
first, second = (start(Path(sys.argv[1]) / name, PROGRAM) for name in ("waited for", "not"))
first.wait()
second.kill()
"""


@contextlib.contextmanager
def all_killed(text: str) -> Iterator[None]:
    """At the end, all processes whose command line holds `text`."""
    try:
        yield
    finally:
        for pid in mentioning(text):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(platform.machine() not in WAIT4, reason="not known how this machine waits for a child")
def test_a_live_model_whose_end_is_waited_for_is_abandoned(tmp_path: Path) -> None:
    with python(WAITS, tmp_path) as server, all_killed(str(tmp_path)):
        assert eventually(lambda: Abandoned(server.pid, patience=0.0).models() == ["waited for"])
        assert Abandoned(server.pid, patience=60.0).models() == []
        slow = Abandoned(server.pid, patience=0.1, every=0.0)
        assert slow.models() == []
        assert eventually(lambda: slow.models() == ["waited for"])
        server.kill()
        server.wait()
        assert slow.models() == []


def test_of_a_server_that_is_gone_nothing_is_abandoned() -> None:
    assert Abandoned(2**22 + 1).models() == []
