"""Names for what a server leaves on the machine, made so that another trtspec can tell whose they are.

A name holds the process id of the trtspec that owns it and the id space that number belongs to (containers may
share /dev/shm). What belongs to a process of this space that no longer lives is swept at the next start.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
from pathlib import Path

from trtspec.supervisor import remove

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where Linux keeps it
_NAME = re.compile(r"trtspec-(?P<space>[0-9a-f]+)-(?P<pid>[0-9]+)-[0-9a-f]{8}")


def new_name() -> str:
    """`trtspec-<id space>-<pid>-<random>`: a prefix nobody else on this machine uses."""
    return f"trtspec-{_space():x}-{os.getpid()}-{secrets.token_hex(4)}"


def patterns(name: str) -> list[str]:
    """Glob patterns of all that belongs to `name`: shared-memory regions and the private folder."""
    return [str(SHARED_MEMORY / f"{name}*"), str(Path(tempfile.gettempdir()) / f"{name}*")]


def private_folder(name: str) -> Path:
    """A new folder of that name, readable only by its owner, in the temporary folder."""
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700)
    return folder


def sweep() -> list[str]:
    """Remove what dead owners left behind; returns their names."""
    names = set()
    for place in (SHARED_MEMORY, Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            names |= {match[0] for entry in os.listdir(place) if (match := _NAME.match(entry)) and _is_stale(match)}
    for name in names:
        remove(patterns(name))
    return sorted(names)


def _is_stale(match: re.Match[str]) -> bool:
    if int(match["space"], 16) != _space():
        return False
    try:
        os.kill(int(match["pid"]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _space() -> int:
    """Number of the process-id namespace."""
    return os.stat("/proc/self/ns/pid").st_ino
