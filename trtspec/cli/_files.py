"""Files that a verb writes where the user says."""

from __future__ import annotations

from pathlib import Path

from trtspec.errors import ConfigError
from trtspec.store import write_atomic


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; ConfigError where it is, or cannot be written."""
    if path.exists():
        raise ConfigError("there is a file already", where=path, fix="choose another name for --out, or move it away")
    try:
        write_atomic(path, text)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=path) from None
