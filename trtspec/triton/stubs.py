"""The processes that run the Python models. Triton starts them, and does not replace one that died: the model
stays READY and fails every request, and the server cannot unload it when it stops.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "triton_python_backend_stub"
SERVER = "tritonserver"
DEAD = "ZX"
WAIT4 = {"x86_64": "61", "aarch64": "260"}
"""Linux's number of the system call that waits for the end of a child."""


@dataclass(frozen=True)
class Stub:
    """A live process of a model."""

    pid: int
    server: int
    model: str


def running_models(server_pid: int) -> Counter[str]:
    """Live stubs of a server by the model they run.

    `server_pid` may also be that of the `mpirun` that has started the server.
    """
    return Counter(stub.model for stub in _stubs(server_pid))


class Abandoned:
    """Models that a server has given up on while it loaded them: it waits for the end of a process that lives on.

    Triton 2.51 does so when a process has not said for one second that it lives. If it then loads its model after
    all, it may never end, and nothing is ever logged.
    """

    def __init__(self, server_pid: int, patience: float = 30.0, every: float = 0.5) -> None:
        self.seen: set[str] = set()
        """All that were ever given up on."""
        self._server_pid = server_pid
        self._patience = patience
        self._every = every
        self._next = 0.0
        self._since: dict[Stub, float] = {}

    def models(self) -> list[str]:
        """Those whose end has been waited for so long that it will not come; looks every half second."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every
            self._since = {
                stub: self._since.get(stub, now)
                for stub in _stubs(self._server_pid)
                if stub.pid in _waited_for(stub.server)
            }
            self.seen |= {stub.model for stub in self._since}
        return sorted({stub.model for stub, since in self._since.items() if now - since >= self._patience})


def _waited_for(server: int) -> set[int]:
    """Children whose end a thread of the server waits for; empty where the kernel does not tell."""
    found = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{server}/task"):
            with contextlib.suppress(OSError, ValueError):
                number, _, rest = Path(f"/proc/{server}/task/{thread}/syscall").read_text().partition(" ")
                if number == WAIT4.get(platform.machine()):
                    found.add(int(rest.split()[0], 16))
    return found


def _stubs(server_pid: int) -> Iterator[Stub]:
    """From /proc; the stub's first argument is .../NAME/1/model.py."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            # A process may end while it is looked at.
            with contextlib.suppress(OSError, ValueError, IndexError):
                program, model = Path(f"/proc/{entry}/cmdline").read_bytes().decode().split("\0")[:2]
                state, parent = _state_and_parent(int(entry))
                if not program.endswith(PROGRAM) or state in DEAD:
                    continue
                if parent == server_pid or _started_by(parent, server_pid):
                    yield Stub(int(entry), parent, Path(model).parts[-3])


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
