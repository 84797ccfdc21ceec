"""Ending politely: a server that got SIGTERM lets no model call another, so requests must end before that.

Whoever runs the server names a folder in TRTSPEC_DRAIN_DIR (`trtspec serve` does). A file `serving.PID` says that this
process takes part. When a file `drain` appears there, no more requests are taken, and when the last one has been
answered a file `drained.PID` says so: then the server can be ended.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "TRTSPEC_DRAIN_DIR"
PERIOD = 0.1


def follow(close: Callable[[], object], folder: str | None = None) -> None:
    """Watch the folder from a thread; `close` takes no more requests and returns when none is left."""
    named = os.environ.get(VARIABLE, "") if folder is None else folder
    if named:
        threading.Thread(target=_run, args=(Path(named), close), name="drain", daemon=True).start()


def _run(folder: Path, close: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):  # such as a folder that is gone: nobody asks any more
        (folder / f"serving.{os.getpid()}").touch()
        while not (folder / "drain").exists():
            time.sleep(PERIOD)
        close()
        (folder / f"drained.{os.getpid()}").touch()
