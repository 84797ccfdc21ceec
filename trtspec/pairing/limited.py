"""Work on a stranger's data in a process of its own, with limits on processor time and memory.

A worker is a module that calls :func:`trtspec.pairing.worker.serve`: one job a line on stdin, one answer a line on
stdout. A job that meets a limit ends the process; the jobs behind it go to a new one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from trtspec.errors import MissingError

PATIENCE = 60.0
"""Seconds of wall time for one process; its processor time is limited to much less."""
Answers = Callable[[], list[str | None]]


@contextmanager
def answering(worker: str, jobs: Sequence[str]) -> Iterator[Answers]:
    """Start the module `worker` on the jobs (one line each) while the body runs; what is yielded waits for all answers.

    None stands for a job that was stopped by the limits, or ended the process in another way.
    """
    with _started(worker, jobs) as process:

        def answers() -> list[str | None]:
            found: list[str | None] = [*_finished(process)]
            while len(found) < len(jobs):
                found.append(None)  # the next job was stopped: it must not hide those behind it
                if jobs[len(found) :]:
                    with _started(worker, jobs[len(found) :]) as another:
                        found += _finished(another)
            return found

        yield answers


@contextmanager
def _started(worker: str, jobs: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryFile() as given:
        given.write("\n".join(jobs).encode() + b"\n")
        given.seek(0)
        process = _spawn(worker, given)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _spawn(worker: str, given: IO[bytes]) -> subprocess.Popen[bytes]:
    # The same packages as here, and no module of the folder one happens to be in.
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", worker], stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    except OSError as error:
        raise MissingError(f"cannot start a process for {worker}: {error}", where=sys.executable) from None


def _finished(process: subprocess.Popen[bytes]) -> list[str]:
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return []
    return [line for line in out.decode().splitlines(keepends=True) if line.endswith("\n")]
