"""SHA-256 of files, each read once: remembered by path, size and modification time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

# A file changed twice within the clock's step could keep its mtime; such a young file is not remembered
# unless its writer vouches for it. Two seconds cover file systems with a coarse clock.
_YOUNG_NS = 2_000_000_000
_BLOCK = 1 << 20


def default_memo_path() -> Path:
    """$TRTSPEC_CACHE, else $XDG_CACHE_HOME/trtspec, else ~/.cache/trtspec."""
    if "TRTSPEC_CACHE" in os.environ:
        return Path(os.environ["TRTSPEC_CACHE"]) / "hashes.json"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trtspec" / "hashes.json"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


class HashMemo:
    """Hashes by absolute path; an entry holds while size and mtime stay. `bytes_read` counts real work."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_memo_path()
        self.bytes_read = 0
        self._entries: dict[str, Any] = self._load()
        self._new: dict[str, Any] = {}
        self._lock = threading.Lock()

    def _load(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # a lost memo costs time, never correctness
        return data if isinstance(data, dict) else {}

    def sha256(self, path: Path, *, lasting: Path | None = None) -> str:
        """Hash of `path`. `lasting` is the name a file just written by us will carry after a rename."""
        stat = path.stat()
        facts = [stat.st_size, stat.st_mtime_ns]
        known = self._entries.get(str(path.absolute()))
        if isinstance(known, list) and known[:2] == facts:
            return str(known[2])
        digest = sha256_of(path)
        self.bytes_read += stat.st_size
        if lasting is not None or time.time_ns() - stat.st_mtime_ns > _YOUNG_NS:
            name = str((lasting or path).absolute())
            with self._lock:
                self._entries[name] = self._new[name] = [*facts, digest]
        return digest

    def save(self) -> None:
        """Merge what is new into the file on disk; another process may have written meanwhile.

        Where nothing can be written (a container without a home), the next run reads the files again.
        """
        with self._lock:
            if not self._new:
                return
            self._entries |= self._load() | self._new
            beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
            with contextlib.suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                beside.write_text(json.dumps(self._entries), encoding="utf-8")
                os.replace(beside, self.path)
            self._new = {}
