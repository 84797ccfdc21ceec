"""The processes that run the Python models. Triton starts them, and does not replace one that died: the model
stays READY and fails every request, and the server cannot unload it when it stops.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path

PROGRAM = "triton_python_backend_stub"
SERVER = "tritonserver"
DEAD = "ZX"


def running_models(server_pid: int) -> Counter[str]:
    """Live stubs of a server by the model they run, from /proc; the stub's first argument is .../NAME/1/model.py.

    `server_pid` may also be that of the `mpirun` that has started the server.
    """
    found: Counter[str] = Counter()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            # A process may end while it is looked at.
            with contextlib.suppress(OSError, ValueError, IndexError):
                program, model = Path(f"/proc/{entry}/cmdline").read_bytes().decode().split("\0")[:2]
                state, parent = _state_and_parent(int(entry))
                if not program.endswith(PROGRAM) or state in DEAD:
                    continue
                if parent == server_pid or _started_by(parent, server_pid):
                    found[Path(model).parts[-3]] += 1
    return found


def _started_by(pid: int, mpirun: int) -> bool:
    """Whether `pid` is a server, and `mpirun` its parent."""
    program = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[0]
    return program.endswith(SERVER) and _state_and_parent(pid)[1] == mpirun


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return _state_and_parent(pid)[0] not in DEAD
    except OSError:
        return False


def _state_and_parent(pid: int) -> tuple[str, int]:
    """From /proc/PID/stat, where the name field may hold spaces and parentheses."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)
