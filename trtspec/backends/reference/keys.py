"""Typed reading of an engine's or checkpoint's config.json; every error names the file and the key."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.errors import ModelFileError


@dataclass(frozen=True)
class Keys:
    """One JSON object and the file it came from. A key that is null counts as absent."""

    data: Mapping[str, Any]
    file: Path
    prefix: str = ""

    @classmethod
    def read(cls, file: Path) -> Keys:
        """The JSON object in `file`; ModelFileError when there is none."""
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ModelFileError("no such file", where=file, expected="an engine or checkpoint folder") from None
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise ModelFileError(f"cannot read: {error}", where=file) from None
        if not isinstance(data, dict):
            raise ModelFileError("not a JSON object", where=file)
        return cls(data, file)

    def wrong(self, key: str, expected: str) -> ModelFileError:
        """An error about `key`, showing its value."""
        found = json.dumps(self.data[key]) if key in self.data else "nothing"
        return ModelFileError(
            f"{self.prefix}{key} cannot be used by the reference engine",
            where=self.file,
            found=found,
            expected=expected,
        )

    def has(self, key: str) -> bool:
        """Present and not null."""
        return self.data.get(key) is not None

    def block(self, key: str, optional: bool = False) -> Keys:
        """A nested object; with `optional` an absent one is empty."""
        value = self.data.get(key)
        if value is None and optional:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return Keys(value, self.file, f"{self.prefix}{key}.")

    def integer(self, key: str, default: int | None = None, low: int = 1) -> int:
        """A whole number of at least `low`."""
        value = self.data.get(key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise self.wrong(key, f"an integer of at least {low}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive finite number."""
        value = self.data.get(key)
        value = default if value is None else value
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.wrong(key, "a positive number")
        return float(value)

    def optional(self, key: str) -> float | None:
        """A positive finite number, or None when absent."""
        return self.number(key) if self.has(key) else None

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self.data.get(key)
        value = default if value is None else value
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """true or false."""
        value = self.data.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def items(self, key: str) -> list[Any]:
        """A list; empty when absent."""
        value = self.data.get(key)
        value = [] if value is None else value
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def only(self, key: str, *allowed: object, default: object = "") -> None:
        """Raises ModelFileError when the value is none of `allowed`."""
        if self.data.get(key, default) not in allowed:
            raise self.wrong(key, " or ".join(json.dumps(value) for value in allowed))
