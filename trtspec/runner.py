"""The one way to start an external program: an argument list, the exact line and all output in a log file.

:class:`Runner` is the seam: :class:`SubprocessRunner` starts real programs, each under
:mod:`trtspec.supervisor`, so that neither an error, nor Ctrl-C, nor the death of trtspec leaves one behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trtspec import supervisor
from trtspec.errors import BuildError, MissingError, TrtspecError

TAIL_LINES = 20
TAIL_BYTES = 65536


@dataclass(frozen=True)
class Completed:
    """A program that ended with return code 0."""

    command: tuple[str, ...]
    log: Path
    seconds: float


class Process(Protocol):
    """A program that was started and may still run."""

    @property
    def pid(self) -> int:
        """Process id of the program, which leads its own process group."""

    def poll(self) -> int | None:
        """None while it runs, else its return code (negative: the signal that ended it)."""

    def wait(self, timeout: float | None = None) -> int:
        """Return code once it and all its descendants are gone; TimeoutError after `timeout` seconds."""

    def stop(self, grace: float | None = None) -> int:
        """SIGTERM, the grace period (seconds; that of the start), SIGKILL for all of the group; the return code.

        May be repeated.
        """

    def kill(self) -> int:
        """SIGKILL for all of the group now; returns the return code. May be repeated."""


class Runner(Protocol):
    """Starts external programs. `environment` is the program's whole environment; None inherits ours."""

    def run(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        timeout: float | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        error: type[TrtspecError] = BuildError,
    ) -> Completed:
        """Run to the end; a failure or `timeout` (seconds) is one `error` with the tail of the log."""

    def start(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        grace: float = 5.0,
        remove: Sequence[str] = (),
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        private: bool = False,
    ) -> Process:
        """Start and return; `remove` are glob patterns deleted when the program is gone. MissingError if absent.

        `private`: what the program writes, its log included, is for this user alone, and it dumps no core.
        """


class SubprocessRunner:
    """Real programs. Output is appended to the log file as it comes, under a line `$ command`."""

    def run(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        timeout: float | None = None,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        error: type[TrtspecError] = BuildError,
    ) -> Completed:
        """See :meth:`Runner.run`."""
        began = time.monotonic()
        process = self.start(command, log=log, cwd=cwd, environment=environment)
        name = Path(command[0]).name
        try:
            code = process.wait(timeout)
        except TimeoutError:
            process.stop()
            raise failure(error, f"{name} did not end within {timeout:g} s", log) from None
        except BaseException:
            process.stop()
            raise
        if code != 0:
            raise failure(error, f"{name} {describe(code)}", log)
        return Completed(tuple(map(str, command)), log, time.monotonic() - began)

    def start(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        grace: float = 5.0,
        remove: Sequence[str] = (),
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        private: bool = False,
    ) -> SupervisedProcess:
        """See :meth:`Runner.start`."""
        words = [str(word) for word in command]
        spec = json.dumps({"command": words, "grace": grace, "remove": list(remove), "private": private})
        log.parent.mkdir(parents=True, exist_ok=True)
        if private:
            log.touch(mode=0o600)
        with log.open("ab") as sink:
            sink.write(f"$ {shlex.join(words)}\n".encode())
            sink.flush()
            keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, spec],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                cwd=cwd,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )
        return SupervisedProcess(keeper, words, list(remove), grace)


class SupervisedProcess:
    """The parent's end of one supervisor."""

    def __init__(self, keeper: subprocess.Popen[bytes], command: list[str], remove: list[str], grace: float) -> None:
        self._keeper = keeper
        self._remove = remove
        self._grace = grace
        self._code: int | None = None
        assert keeper.stdout is not None
        try:
            verb, _, rest = keeper.stdout.readline().decode().rstrip().partition(" ")
        except BaseException:
            # Closing the lifeline makes the supervisor end everything, whatever it had begun.
            self._close()
            raise
        if verb != "started":
            self._close()
            raise MissingError(
                f"cannot start {command[0]}", found=rest or "the supervisor died", fix="install it or correct its path"
            )
        self._pid = int(rest)

    @property
    def pid(self) -> int:
        """See :class:`Process`."""
        return self._pid

    def poll(self) -> int | None:
        """See :class:`Process`."""
        if self._code is None and self._keeper.poll() is not None:
            self._code = self._ending()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """See :class:`Process`."""
        if self._code is None:
            try:
                self._keeper.wait(timeout)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"process {self._pid} still runs") from None
            self._code = self._ending()
        return self._code

    def stop(self, grace: float | None = None) -> int:
        """See :class:`Process`."""
        seconds = self._grace if grace is None else grace
        return self._end(f"stop {seconds}\n".encode(), seconds + supervisor.KILL_TIMEOUT)

    def kill(self) -> int:
        """See :class:`Process`."""
        return self._end(b"kill\n", supervisor.KILL_TIMEOUT)

    def _end(self, word: bytes, patience: float) -> int:
        if self._code is not None:
            return self._code
        try:
            self._say(word)
            return self.wait(patience)
        except TimeoutError:
            self._keeper.kill()
            return self.wait(supervisor.KILL_TIMEOUT)
        except BaseException:
            # A second Ctrl-C: no more patience, but still nothing left behind.
            self._say(b"kill\n")
            raise

    def _say(self, word: bytes) -> None:
        assert self._keeper.stdin is not None
        with contextlib.suppress(OSError):
            self._keeper.stdin.write(word)
            self._keeper.stdin.flush()

    def _ending(self) -> int:
        """The code the supervisor reported; when it was killed itself, its duties are done here."""
        assert self._keeper.stdout is not None
        verb, _, rest = self._keeper.stdout.read().decode().strip().partition(" ")
        self._close()
        if verb == "ended":
            return int(rest)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        supervisor.remove(self._remove)
        return -signal.SIGKILL

    def _close(self) -> None:
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._keeper.wait()


def describe(return_code: int) -> str:
    """`ended with exit code 3` or `was ended by SIGKILL`."""
    if return_code >= 0:
        return f"ended with exit code {return_code}"
    try:
        return f"was ended by {signal.Signals(-return_code).name}"
    except ValueError:
        return f"was ended by signal {-return_code}"


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last `lines` lines of a log file that have text, read from its last 64 KiB; empty if there is no file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


def failure(error: type[TrtspecError], what: str, log: Path) -> TrtspecError:
    """An `error` that shows the last lines that the last command in `log` wrote."""
    lines = tail(log)
    begins = max((i for i, line in enumerate(lines) if line.startswith("$ ")), default=-1)
    found = error(what, found="; ".join(lines[begins + 1 :][-3:]) or "no output", fix="read the log")
    found.context["log"] = str(log)
    return found
