"""Files that a verb writes where the user says."""

from __future__ import annotations

import os
from pathlib import Path

from trtspec.errors import ConfigError
from trtspec.store import write_atomic

_ELSEWHERE = "name another place with --out"


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; ConfigError where it is, or cannot be written."""
    if path.exists():
        raise ConfigError("there is a file already", where=path, fix="choose another name for --out, or move it away")
    write_out(path, text)


def write_out(path: Path, text: str) -> None:
    """Write a file, over an earlier one too; ConfigError where it cannot be."""
    try:
        write_atomic(path, text)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=path, fix=_ELSEWHERE) from None


def require_writable(path: Path) -> None:
    """ConfigError now for what would be found out only after minutes of measuring. Makes nothing."""
    if path.is_dir():
        raise ConfigError("this is a folder", where=path, expected="a file", fix=_ELSEWHERE)
    require_writable_folder(path.parent)


def require_writable_folder(folder: Path) -> None:
    """The same for a folder that files go into, which need not be there yet."""
    there = folder.absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise ConfigError("cannot be written: this is no folder", where=there, fix=_ELSEWHERE)
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError("cannot be written: no permission", where=there, fix=_ELSEWHERE)
