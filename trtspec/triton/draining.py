"""Letting running requests end before the server is told to.

Once tritonserver has got SIGTERM, the Python backend refuses every call of another model ("Server not ready"), so the
pipeline could not even finish the round it is in. So it is asked first, through a folder (see the pipeline's
drain.py): each of its processes has a file `serving.PID` there; when the file `drain` appears it takes no more
requests, and when the last one has been answered it writes `drained.PID`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "TRTSPEC_DRAIN_DIR"
POLL = 0.05


class Draining:
    """The folder of one server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """What the server's models must be told."""
        return {VARIABLE: str(self._folder)}

    def drain(self, timeout: float, alive: Callable[[int], bool]) -> bool:
        """Ask, and wait until every pipeline that is `alive` is empty; False if that took too long."""
        with contextlib.suppress(OSError):
            if self._serving():
                (self._folder / "drain").touch()
        deadline = time.monotonic() + timeout
        while any(alive(pid) for pid in self._serving() - self._pids("drained")):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL)
        return True

    def _serving(self) -> set[int]:
        return self._pids("serving")

    def _pids(self, what: str) -> set[int]:
        return {int(path.suffix[1:]) for path in self._folder.glob(f"{what}.*") if path.suffix[1:].isdecimal()}
