"""TensorRT-LLM version numbers: read, ordered and shown. The `packaging` library is no dependency, so by own rule.

The forms that exist: 1.2.1, 0.17.0.post1, 1.3.0rc21, 1.1.0rc2.post1, 0.17.0.dev2024121700, 1.0.3.2510 (NVIDIA's own
builds), each with an optional +local part that does not count. Order as in PEP 440: dev < rc < final < post.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from trtspec.errors import ConfigError

_FORM = re.compile(
    r"v?(?P<release>\d+(?:\.\d+){1,3})(?:\.?rc(?P<rc>\d+))?(?:\.?post(?P<post>\d+))?(?:\.?dev(?P<dev>\d+))?"
    r"(?:\+[\w.]+)?"
)
_FINAL = 1 << 62  # above every candidate's number


@functools.total_ordering
@dataclass(frozen=True)
class Number:
    """One version. `release` has three or four numbers; None where a part is not given."""

    release: tuple[int, ...]
    rc: int | None = None
    post: int | None = None
    dev: int | None = None

    @property
    def base(self) -> str:
        """`1.3.0` of 1.3.0rc21."""
        return ".".join(map(str, self.release))

    @property
    def is_final(self) -> bool:
        """Neither a release candidate nor a nightly; a post release is final."""
        return self.rc is None and self.dev is None

    def __str__(self) -> str:
        parts = (("rc", self.rc), (".post", self.post), (".dev", self.dev))
        return self.base + "".join(f"{name}{value}" for name, value in parts if value is not None)

    def _key(self) -> tuple[tuple[int, ...], int, int, int]:
        rc = self.rc if self.rc is not None else _FINAL
        if self.dev is not None and self.rc is None and self.post is None:
            rc = -1  # a nightly of the release comes before its first candidate
        return self.release, rc, -1 if self.post is None else self.post, _FINAL if self.dev is None else self.dev

    def __lt__(self, other: Number) -> bool:
        return self._key() < other._key()


def parse(text: str, where: str = "") -> Number:
    """ConfigError for what is no version number; `where` says who gave it."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            "not a TensorRT-LLM version", where=where or None, found=repr(text), expected="such as 1.2.1 or 1.3.0rc21"
        )
    release = tuple(map(int, match["release"].split(".")))
    rc, post, dev = (int(match[part]) if match[part] else None for part in ("rc", "post", "dev"))
    return Number(release + (0,) * (3 - len(release)), rc, post, dev)


def shown(text: str) -> str:
    """As people write it: 0.19.0 is 0.19, 1.2.1 stays."""
    return text.removesuffix(".0") if text.count(".") == 2 else text
