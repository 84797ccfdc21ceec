"""Stand-ins for the seams of the package, shared by the tests of several rooms."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trtspec.errors import BuildError, TrtspecError
from trtspec.runner import Completed


@dataclass
class Started:
    """What a FakeRunner was asked to start."""

    command: list[str]
    log: Path
    cwd: Path | None
    environment: Mapping[str, str] | None
    grace: float = 0.0
    remove: tuple[str, ...] = ()
    private: bool = False


@dataclass
class FakeProcess:
    """A program that never was; `code` None runs for ever."""

    code: int | None = None
    pid: int = field(default_factory=os.getpid)  # some process that lives
    stops: int = 0
    grace: float | None = None
    """Of the last stop."""

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        if self.code is None:
            raise TimeoutError
        return self.code

    def stop(self, grace: float | None = None) -> int:
        self.stops += 1
        self.grace = grace
        self.code = 0 if self.code is None else self.code
        return self.code

    def kill(self) -> int:
        self.code = -9
        return self.code


@dataclass
class FakeRunner:
    """Starts nothing. The n-th start gets the n-th of `outcomes`: (return code, text for the log); None runs on."""

    outcomes: Sequence[tuple[int | None, str]] = ((0, ""),)
    started: list[Started] = field(default_factory=list)
    processes: list[FakeProcess] = field(default_factory=list)

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
        process = self.start(command, log=log, cwd=cwd, environment=environment)
        if process.wait() != 0:
            raise error(f"{command[0]} failed")
        return Completed(tuple(map(str, command)), log, 0.0)

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
    ) -> FakeProcess:
        code, text = self.outcomes[min(len(self.started), len(self.outcomes) - 1)]
        words = [str(word) for word in command]
        self.started.append(Started(words, log, cwd, environment, grace, tuple(remove), private))
        with log.open("a", encoding="utf-8") as sink:
            sink.write(f"$ {' '.join(words)}\n{text}\n")
        self.processes.append(FakeProcess(code))
        return self.processes[-1]
