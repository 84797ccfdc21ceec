"""Names for what a server leaves on the machine, made so that another trtspec can tell whose they are.

A name holds the process id of the trtspec that owns it and the id space that number belongs to: containers may share
/dev/shm, and machines a temporary folder. What belongs to a process of this space that no longer lives is swept at the
next start; of other spaces nothing is known, so nothing is touched.
"""

from __future__ import annotations

import contextlib
import hashlib
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


def keep_private(name: str) -> None:
    """Let nobody else read that shared memory: prompts and answers pass through it.

    The Python backend makes it readable by all, whatever the umask says (boost sets the mode itself). It makes it
    when a model loads, so that this is in time once all models have.
    """
    for region in SHARED_MEMORY.glob(f"{name}*"):
        with contextlib.suppress(FileNotFoundError):
            region.chmod(0o600)


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
    """Stands for this boot of this machine and the process-id namespace: what a process id means.

    A namespace's number alone is not enough: that of the first one is the same on every machine.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return int(hashlib.sha256(boot + b" %d" % namespace).hexdigest()[:12], 16)
