"""Read JSON from a model folder as data from a stranger: bounded, UTF-8, no repeated keys, no NaN."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from trtspec.errors import ModelFileError

ABSENT = "no such file"
CONFIG_LIMIT = 16 << 20
"""Bytes a config.json may have; real ones have a few thousand."""


def present(path: Path) -> bool:
    """Whether something has this name, be it readable or a link to nothing. OSError: the folder may not be entered."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_object(path: Path, *, limit: int = CONFIG_LIMIT, fix: str | None = None) -> dict[str, Any]:
    """The JSON object in `path`. ModelFileError: absent, unreadable, over `limit` bytes, or not one object."""
    return parse_object(read_bytes(path, limit=limit, fix=fix), path)


def read_bytes(path: Path, *, limit: int, fix: str | None = None) -> bytes:
    """Content of a regular file of at most `limit` bytes; ModelFileError otherwise."""
    try:
        if path.exists() and not path.is_file():
            raise ModelFileError("not a regular file", where=path)
        with path.open("rb") as file:
            # Asking for what the file has: Python reserves as much as is asked for.
            data = file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)
    except FileNotFoundError:
        # A link into an emptied cache is a broken model, not one without this file.
        what = "a link to a file that is not there" if path.is_symlink() else ABSENT
        raise ModelFileError(what, where=path, fix=fix) from None
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=path) from None
    except ValueError as error:
        raise ModelFileError(f"cannot be read: {error}", where=path) from None
    if len(data) > limit:
        raise ModelFileError("too large for a file of its kind", where=path, expected=f"at most {limit} bytes")
    return data


def parse_object(data: bytes, where: Path) -> dict[str, Any]:
    """`data` as one JSON object, strictly; ModelFileError names `where`."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ModelFileError("is not UTF-8 text", where=where, found=f"byte {error.start}: {error.reason}") from None
    except RecursionError:
        raise ModelFileError("is nested too deeply", where=where) from None
    except ValueError as error:
        raise ModelFileError(f"is not valid JSON: {error}", where=where) from None
    if not isinstance(value, dict):
        raise ModelFileError("is not a JSON object", where=where, found=type(value).__name__)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # json keeps the last of two equal keys, so a second tensor of one name would hide the first.
    found = dict(pairs)
    if len(found) != len(pairs):
        name, times = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"{name!r} is given {times} times")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


class Keys:
    """Typed reading of one JSON object; every error names the file and the key."""

    def __init__(
        self, data: Mapping[str, Any], where: Path, prefix: str = "", defaults: Mapping[str, Any] | None = None
    ) -> None:
        """`defaults` stand for keys that are absent; a key that is null stays null."""
        self.given = data
        self.data = {**(defaults or {}), **data}
        self.where, self.prefix = where, prefix

    def wrong(self, key: str, what: str, expected: str | None = None, fix: str | None = None) -> ModelFileError:
        """An error about `key`, showing its value."""
        found = repr(self.data.get(key))
        shown = found if len(found) <= 80 else found[:77] + "..."
        return ModelFileError(f"{self.prefix}{key} {what}", where=self.where, found=shown, expected=expected, fix=fix)

    def has(self, key: str) -> bool:
        """Present and not null: transformers writes null for "not set"."""
        return self.data.get(key) is not None

    def defaulted(self, key: str) -> bool:
        """Whether the value of `key` is not in the file."""
        return key not in self.given

    def integer(self, key: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int:
        """A whole number in [least, most]; `default` when absent, an error when that is None."""
        value = self._or_default(key, default)
        # bool is an int to Python, and 4096.0 a float: neither is what a config means.
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(key, "is not a valid size", f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A finite number > above; `default` when absent, an error when that is None."""
        value = self._or_default(key, default)
        if type(value) not in (int, float) or not above < value < 1e18:
            raise self.wrong(key, "is not a valid number", f"a number above {above:g}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """true or false; `default` when absent, an error when that is None."""
        value = self._or_default(key, default)
        if type(value) is not bool:
            raise self.wrong(key, "is not a truth value", "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A non-empty string; `default` when absent, an error when that is None."""
        value = self._or_default(key, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "is not a string", "a string")
        return value

    def block(self, key: str) -> Keys | None:
        """A nested object, or None when absent."""
        if not self.has(key):
            return None
        value = self.data[key]
        if not isinstance(value, dict):
            raise self.wrong(key, "is not an object", "an object of keys")
        return Keys(value, self.where, f"{self.prefix}{key}.")

    def ids(self, key: str) -> tuple[int, ...]:
        """One token id or a list of them, as a tuple; empty when absent."""
        if not self.has(key):
            return ()
        value = self.data[key]
        found = value if isinstance(value, list) else [value]
        if any(type(i) is not int or i < 0 for i in found):
            raise self.wrong(key, "is not a token id", "a whole number, or a list of them")
        return tuple(found)

    def _or_default(self, key: str, default: Any) -> Any:
        if self.has(key):
            return self.data[key]
        if default is None:
            raise ModelFileError(f"{self.prefix}{key} is missing", where=self.where)
        return default
