"""External programs: the log, the errors, and that nothing outlives whoever started it."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.processes import alive, eventually, line, mentioning, python
from trtspec.errors import BuildError, MissingError, ServingError
from trtspec.runner import SubprocessRunner, describe, tail

# The second one leaves the process group and the session.
LEAVES_TWO = "sleep 300 & a=$!; setsid sleep 300 & echo $a $!; "


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "run.log"


@pytest.fixture
def runner() -> SubprocessRunner:
    return SubprocessRunner()


def pids(log: Path, count: int = 2) -> list[int]:
    """The ids a shell script printed as the first line of its output."""
    assert eventually(lambda: log.exists() and len(log.read_text().partition("\n")[2].split()) >= count)
    return [int(word) for word in log.read_text().split("\n", 1)[1].split()[:count]]


def test_the_log_holds_the_exact_line_and_both_streams(runner: SubprocessRunner, log: Path) -> None:
    done = runner.run(["sh", "-c", "echo 'out put'; echo err >&2"], log=log)
    assert done.command == ("sh", "-c", "echo 'out put'; echo err >&2")
    assert log.read_text().splitlines() == ["$ sh -c 'echo '\"'\"'out put'\"'\"'; echo err >&2'", "out put", "err"]
    assert done.seconds > 0


def test_arguments_are_never_read_by_a_shell(runner: SubprocessRunner, log: Path) -> None:
    runner.run([sys.executable, "-c", "import sys; print(sys.argv[1:])", "$HOME; ls *", "", "two words"], log=log)
    assert log.read_text().splitlines()[-1] == str(["$HOME; ls *", "", "two words"])


def test_environment_and_folder_are_the_given_ones(runner: SubprocessRunner, log: Path, tmp_path: Path) -> None:
    runner.run(["/bin/sh", "-c", "pwd; echo $COLOUR"], log=log, cwd=tmp_path, environment={"COLOUR": "green"})
    assert log.read_text().splitlines()[1:] == [str(tmp_path), "green"]


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_a_private_program_shares_nothing(
    runner: SubprocessRunner, log: Path, tmp_path: Path, private: bool, mode: int
) -> None:
    before = os.umask(0o022)
    try:
        says = f"touch {tmp_path}/made; ulimit -c; ulimit -s; ulimit -Hc"
        assert runner.start(["sh", "-c", says], log=log, private=private).wait(30) == 0
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == mode
    assert log.stat().st_mode & 0o777 == mode
    core, stack, hard = log.read_text().splitlines()[1:]
    if private:
        assert (core, stack) == ("0", "65536")
    assert hard == str(_hard_limit())  # who wants a core dump can still ask for one


def _hard_limit() -> int | str:
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    return "unlimited" if most == resource.RLIM_INFINITY else most // 1024


def test_a_second_run_is_appended_and_its_failure_shows_only_its_own_tail(runner: SubprocessRunner, log: Path) -> None:
    runner.run(["echo", "the first run"], log=log)
    with pytest.raises(BuildError) as caught:
        runner.run(["sh", "-c", "echo one; echo two; echo three; echo last words; exit 3"], log=log)
    assert caught.value.found == "two; three; last words"
    assert "ended with exit code 3" in str(caught.value)
    assert caught.value.context["log"] == str(log)
    assert "the first run" in log.read_text()


def test_the_error_is_of_the_kind_asked_for(runner: SubprocessRunner, log: Path) -> None:
    with pytest.raises(ServingError, match="no output"):
        runner.run(["false"], log=log, error=ServingError)


def test_a_program_killed_by_a_signal_is_named_so(runner: SubprocessRunner, log: Path) -> None:
    with pytest.raises(BuildError, match="was ended by SIGSEGV"):
        runner.run(["sh", "-c", "kill -SEGV $$"], log=log)
    assert describe(-99) == "was ended by signal 99"


def test_a_program_that_is_not_there(runner: SubprocessRunner, log: Path) -> None:
    with pytest.raises(MissingError, match=r"cannot start no-such-program.*No such file"):
        runner.run(["no-such-program"], log=log)


def test_a_timeout_ends_the_whole_group(runner: SubprocessRunner, log: Path) -> None:
    with pytest.raises(BuildError, match=r"sh did not end within 1\.5 s"):
        runner.run(["sh", "-c", LEAVES_TWO + "wait"], log=log, timeout=1.5)
    assert not any(alive(pid) for pid in pids(log))


def test_nothing_outlives_a_program_that_ends_well(runner: SubprocessRunner, log: Path) -> None:
    runner.run(["sh", "-c", LEAVES_TWO], log=log)
    assert not any(alive(pid) for pid in pids(log))


def test_an_interrupt_ends_the_group(runner: SubprocessRunner, log: Path) -> None:
    def interrupt() -> None:
        pids(log)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Timer(0.1, interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        runner.run(["sh", "-c", LEAVES_TWO + "wait"], log=log)
    assert not any(alive(pid) for pid in pids(log))


def test_stop_is_polite_first(runner: SubprocessRunner, log: Path) -> None:
    process = runner.start(["sh", "-c", "trap 'echo bye; exit 7' TERM; echo on; while :; do sleep 0.05; done"], log=log)
    assert eventually(lambda: "on" in tail(log))
    assert process.poll() is None
    assert (process.stop(), process.stop(), process.poll(), process.wait()) == (7, 7, 7, 7)
    assert tail(log)[-1] == "bye"


def test_stop_kills_after_the_grace_period(runner: SubprocessRunner, log: Path) -> None:
    process = runner.start(["sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.05; done"], log=log, grace=0.3)
    assert eventually(lambda: "on" in tail(log))
    began = time.monotonic()
    assert process.stop() == -signal.SIGKILL
    assert 0.3 <= time.monotonic() - began < 5.0
    assert not alive(process.pid)


def test_the_grace_period_may_be_another_when_the_time_comes(runner: SubprocessRunner, log: Path) -> None:
    process = runner.start(["sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.05; done"], log=log, grace=3000.0)
    assert eventually(lambda: "on" in tail(log))
    assert process.stop(0.3) == -signal.SIGKILL


def test_kill_does_not_wait(runner: SubprocessRunner, log: Path) -> None:
    process = runner.start(["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], log=log, grace=300.0)
    assert process.kill() == -signal.SIGKILL
    assert not alive(process.pid)


def test_wait_gives_up_in_time_and_leaves_the_program_alone(runner: SubprocessRunner, log: Path) -> None:
    process = runner.start(["sleep", "300"], log=log)
    with pytest.raises(TimeoutError):
        process.wait(0.1)
    assert process.poll() is None
    assert process.stop() == -signal.SIGTERM


def test_what_the_program_leaves_behind_is_removed(runner: SubprocessRunner, log: Path, tmp_path: Path) -> None:
    (tmp_path / "mine-folder" / "deep").mkdir(parents=True)
    (tmp_path / "mine-1").touch()
    (tmp_path / "other").touch()
    (tmp_path / "mine-link").symlink_to(tmp_path / "other")
    runner.start(["true"], log=log, remove=[str(tmp_path / "mine-*"), str(tmp_path / "absent*")]).wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "other"]


def test_a_failed_start_removes_too(runner: SubprocessRunner, log: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(MissingError):
        runner.start(["no-such-program"], log=log, remove=[str(tmp_path / "mine")])
    assert not (tmp_path / "mine").exists()


PARENT = """
import sys, time
from pathlib import Path
from trtspec.runner import SubprocessRunner
process = SubprocessRunner().start(["sh", "-c", sys.argv[2]], log=Path(sys.argv[1]), remove=[sys.argv[3]])
print(process.pid, flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_survives_the_death_of_the_parent(log: Path, tmp_path: Path, number: signal.Signals) -> None:
    left = tmp_path / "left"
    left.touch()
    with python(PARENT, log, "trap '' TERM HUP; " + LEAVES_TWO + "wait", left) as parent:
        everyone = [int(line(parent)), *pids(log), *mentioning(str(left))]
        parent.send_signal(number)
    assert eventually(lambda: not any(alive(pid) for pid in everyone), 3.0)
    assert eventually(lambda: not left.exists(), 3.0)


def test_the_death_of_the_supervisor_takes_the_program_along(
    runner: SubprocessRunner, log: Path, tmp_path: Path
) -> None:
    left = tmp_path / "left-by-the-program"
    left.touch()
    process = runner.start(["sh", "-c", LEAVES_TWO + "wait"], log=log, remove=[str(left)])
    everyone = [process.pid, pids(log)[0]]
    [supervisor] = mentioning(str(left))
    os.kill(supervisor, signal.SIGKILL)
    assert process.wait(5.0) == -signal.SIGKILL
    assert eventually(lambda: not any(alive(pid) for pid in everyone))
    assert not left.exists()
    # Nobody was there to find the one that left the group.
    os.kill(pids(log)[1], signal.SIGKILL)


def test_tail_of_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("x" * 200_000 + "\n\nlast but one\n \nlast\n")
    assert tail(log, 2) == ["last but one", "last"]
    assert tail(tmp_path / "absent.log") == []
