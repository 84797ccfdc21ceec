"""Steps on this machine: in order, watched while they run, ended in time."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from tests.backends.launchers.steps import Seen, step
from trtspec.backends.launchers.base import Cancelled, Follower, StepFailed
from trtspec.backends.launchers.local import LocalLauncher
from trtspec.errors import MissingError
from trtspec.runner import SubprocessRunner

LOCAL = LocalLauncher(SubprocessRunner())


def python(folder: Path, code: str, **changes: object) -> object:
    return step(folder, command=(sys.executable, "-c", code), **changes)


def test_lines_are_seen_as_they_come(tmp_path: Path) -> None:
    seen = Seen()
    code = "import os; print('one', flush=True); print(os.environ['GIVEN'], end='')"
    LOCAL.run([python(tmp_path, code, variables={"GIVEN": "two"})], seen)  # type: ignore[list-item]
    assert seen.lines[-2:] == ["one", "two"]


def test_a_failed_step_ends_the_sequence(tmp_path: Path) -> None:
    after = tmp_path / "after"
    steps = [python(tmp_path, "raise SystemExit(3)"), python(tmp_path, f"open({str(after)!r}, 'w')")]
    with pytest.raises(StepFailed, match="exit code 3") as caught:
        LOCAL.run(steps, Seen())  # type: ignore[arg-type]
    assert caught.value.return_code == 3
    assert caught.value.context["log"] == str(tmp_path / "engine.log")
    assert not after.exists()


def test_signals_and_missing_programs(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="SIGKILL") as caught:
        LOCAL.run([python(tmp_path, "import os; os.kill(os.getpid(), 9)")], Seen())  # type: ignore[list-item]
    assert caught.value.return_code == -9
    with pytest.raises(MissingError, match="cannot start"):
        LOCAL.run([step(tmp_path, command=("/no/such/trtllm-build",))], Seen())


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
def test_what_must_end_ends_with_all_it_started(tmp_path: Path, how: str) -> None:
    seen, began = Seen(), time.monotonic()
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    if how == "cancelled":
        threading.Timer(0.5, lambda: setattr(seen, "stop", True)).start()
    expected = Cancelled if how == "cancelled" else StepFailed
    with pytest.raises(expected):
        LOCAL.run([python(tmp_path, code, timeout=0.5 if how == "timeout" else 60.0)], seen)  # type: ignore[list-item]
    assert time.monotonic() - began < 20


def test_the_follower_gives_whole_lines_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    follower = Follower(log)
    with log.open("ab") as file:
        file.write(b"a\nhal")
        file.flush()
        assert follower.lines() == ["a"]
        file.write(b"f\r50%\r\nrest \xff")
    assert follower.lines() == ["half", "50%"]
    assert follower.lines(last=True) == ["rest \ufffd"]
    assert follower.all() == ["a", "half", "50%", "rest \ufffd"]
    assert Follower(tmp_path / "none").lines() == []
