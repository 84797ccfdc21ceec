"""Looking at real processes: who lives, and waiting for something to become true."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PROJECT = Path(__file__).parent.parent


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def mentioning(text: str) -> list[int]:
    """Processes, other than this one, whose command line holds `text`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in line:
                found.append(int(entry))
    return found


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Poll until true or out of time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@contextlib.contextmanager
def python(
    source: str, *arguments: str | Path, before: Sequence[str] = (), stdin: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A Python of its own, in the project folder, with its stdout piped; it is gone at the end of the block."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", source, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    with process:
        try:
            yield process
            process.wait(30)
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """The next line it prints, empty at its end."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
