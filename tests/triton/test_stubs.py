"""Finding the processes of the models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import eventually
from trtspec.triton.stubs import PROGRAM, is_alive, running_models


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
