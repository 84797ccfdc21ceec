"""What every row of the version table carries: where it is from, how sure it is, and for which versions it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trtspec.versions.number import Number, parse

Evidence = Literal["stated", "between", "inferred"]
"""`stated`: a release note, pull request, package metadata or document of the version itself says so. `between`: equal
in the two trees that enclose the range, 0.17.0.dev2024121700 and 1.3.0rc3, and not read tag by tag. `inferred`: a
conclusion of ours. The last two count as inferred."""

FIRST = "0.17.0"
LAST = "1.2.1"
"""First and last release whose engines are built."""
BOTH_TREES = "both trees: build.py, plugin.py"
NEW_TREE = "newer tree only: plugin.py"
OLD_TREE = "older tree only: build.py"
"""The trees: TensorRT-LLM 0.17.0.dev2024121700 (older) and 1.3.0rc3 (newer); the files tensorrt_llm/commands/build.py
and tensorrt_llm/plugin/plugin.py."""
NOTES = "TensorRT-LLM release notes (docs/source/release-notes.md)"
METADATA = "package metadata of tensorrt-llm {name} on PyPI"
MATRIX = "Triton server docs/introduction/compatibility.md"


@dataclass(frozen=True)
class Span:
    """Versions from `first` to `last`, both included; None is open."""

    first: str | None = FIRST
    last: str | None = LAST

    def holds(self, number: Number) -> bool:
        """Whether `number` lies inside. A post release counts as its release."""
        release = Number(number.release, number.rc, None, number.dev)
        after = self.first is None or parse(self.first) <= release
        return after and (self.last is None or release <= parse(self.last))

    def __str__(self) -> str:
        if self.first is None and self.last is None:
            return "all"
        if self.first == self.last:
            return str(self.first)
        return f"{self.first or 'start'} - {self.last or 'newest'}"


ALL = Span()


@dataclass(frozen=True, kw_only=True)
class Row:
    """Base of the table's rows."""

    span: Span = ALL
    source: str
    evidence: Evidence = "stated"
    note: str = ""

    @property
    def inferred(self) -> bool:
        """True where no document of that very version says it."""
        return self.evidence != "stated"
