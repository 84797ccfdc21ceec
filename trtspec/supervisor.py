"""A program of its own that keeps one external program: nothing it started outlives whoever asked for it.

Run as ``python -I -S supervisor.py SPEC``, with only the standard library and no import of trtspec. SPEC is JSON:
``command`` (argument list), ``grace`` (seconds between SIGTERM and SIGKILL), ``remove`` (glob patterns of what the
program may leave behind), ``private`` (the program's files and memory are nobody else's business). Output of the
program goes to stderr, a log file chosen by the parent. Stdin is the lifeline: a line ``stop`` ends the program
politely (``stop SECONDS`` with another grace), a line ``kill`` ends it now, and end of file means that the parent is
gone, however it went, so the program is killed at once. Stdout tells the parent, one line each: ``started PID`` or
``failed REASON``, and ``ended RETURNCODE`` (negative: the signal) once everything is cleaned up.

The program leads a session of its own and the supervisor is the reaper of its descendants, so that even those
that left the process group are found. Should the supervisor itself be killed, the kernel kills the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TICK = 0.1
KILL_TIMEOUT = 10.0
STACK = 64 << 20
"""Bytes; NVIDIA's own advice for containers with Triton (`--ulimit stack=67108864`)."""
LOST = -int(signal.SIGKILL)


def main(spec_text: str) -> int:
    """Start, watch, end, clean up; the exit code is 0 when all of that worked."""
    spec = json.loads(spec_text)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # Not SIG_IGN, which the program would inherit.
        signal.signal(number, _on_signal)
    try:
        program = _start(spec["command"], spec.get("private", False))
    except OSError as error:
        remove(spec["remove"])
        _tell(f"failed {error.strerror or error}")
        return 1
    _tell(f"started {program.pid}")
    return_code = program.returncode = _watch(program.pid, spec["grace"])
    _kill_descendants(program.pid)
    remove(spec["remove"])
    _tell(f"ended {return_code}")
    return 0


def remove(patterns: list[str]) -> None:
    """Delete every file and folder that matches; what is already gone is fine."""
    for path in (match for pattern in patterns for match in glob.glob(pattern)):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)


_asked_to_stop = False


def _on_signal(number: int, _frame: FrameType | None) -> None:
    global _asked_to_stop
    _asked_to_stop = _asked_to_stop or number == signal.SIGTERM


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _start(command: list[str], private: bool = False) -> subprocess.Popen[bytes]:
    """Start the program. The caller keeps the object: on deletion it would take the return code from `_reap`."""
    parent = os.getpid()

    def die_with_parent() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if private:
            _keep_private()

    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=True, preexec_fn=die_with_parent
    )


def _keep_private() -> None:
    """Files and shared memory for this user alone, and no core dump: what a server handles is in all of them.

    And room on its threads' stacks: Triton up to 25.06 puts a request's HTTP body on one, and 4 MB of it are its end.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    now, most = resource.getrlimit(resource.RLIMIT_STACK)
    # Without a limit the C library gives a thread 2 MiB.
    if now == resource.RLIM_INFINITY or now < STACK:
        resource.setrlimit(resource.RLIMIT_STACK, (STACK if most == resource.RLIM_INFINITY else min(STACK, most), most))


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def _watch(pid: int, grace: float) -> int:
    """Wait for the program's end, or bring it about; returns its return code."""
    parent, deadline, lifeline = os.getppid(), float("inf"), [0]
    while True:
        ended = _reap(pid)
        if ended is not None:
            return ended
        heard, _, _ = select.select(lifeline, [], [], TICK)
        word = os.read(0, 64) if heard else b""
        if word.startswith(b"stop "):
            grace = float(word.split()[1])
        orphaned = os.getppid() != parent or (bool(heard) and not word)
        if orphaned or b"kill" in word or time.monotonic() > deadline:
            lifeline, deadline = [], float("inf")
            _signal(pid, signal.SIGKILL)
        elif deadline == float("inf") and (b"stop" in word or (_asked_to_stop and lifeline)):
            deadline = time.monotonic() + grace
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def _reap(pid: int) -> int | None:
    """Collect every child that ended; the return code of `pid` when it was among them or is no child any more."""
    found = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return LOST if found is None else found
        if child == 0:
            return found
        if child == pid:
            found = os.waitstatus_to_exitcode(status)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_descendants(group: int) -> None:
    """SIGKILL the program's group, then whatever was left to this reaper, until there is no child."""
    _signal(group, signal.SIGKILL)
    deadline = time.monotonic() + KILL_TIMEOUT
    while time.monotonic() < deadline:
        _reap(0)
        children = _children()
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def _children() -> list[int]:
    """Processes whose parent this is, from /proc."""
    me, found = os.getpid(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat", "rb") as stat:
                # The name field may hold spaces and parentheses; the parent's id follows the state after the last one.
                if int(stat.read().rpartition(b")")[2].split()[1]) == me:
                    found.append(int(entry))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
