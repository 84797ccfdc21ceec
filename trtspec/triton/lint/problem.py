"""One thing that is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trtspec.triton.lint.codes import RULES


@dataclass(frozen=True)
class Problem:
    """`model` is the folder it is in, or `target`, `draft`, `pair` for what concerns engines only."""

    model: str
    message: str
    code: str
    severity: Literal["error", "warning"] = "error"
    fix: str | None = None

    def __post_init__(self) -> None:
        if self.code not in RULES:
            raise ValueError(f"lint code {self.code!r} is not documented in RULES")

    def __str__(self) -> str:
        return f"{self.model}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"code": self.code, "severity": self.severity, "subject": self.model, "message": self.message,
                "fix": self.fix}  # fmt: skip
