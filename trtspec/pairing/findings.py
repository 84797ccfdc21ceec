"""What checks say. Only the verdict decides: any error fails, any warning warns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trtspec.errors import TrtspecError
from trtspec.pairing.codes import CODES

Severity = Literal["error", "warning", "info"]
NOT_MEASURED = ".not-measured"


@dataclass(frozen=True)
class Finding:
    """One thing a check says. `subject` is `draft`, `target` or `pair`; `data` holds the figures behind the message."""

    code: str
    severity: Severity
    subject: str
    message: str
    fix: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    brief: str | None = None
    """The message in a few words, for the one line that good findings of a subject share; not in `--json`."""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"finding code {self.code!r} is not documented in CODES")

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "code": self.code,
            "severity": self.severity,
            "subject": self.subject,
            "message": self.message,
            "fix": self.fix,
            "data": dict(self.data),
        }


def error_finding(code: str, role: str, error: TrtspecError) -> Finding:
    """An error as a finding: what it found and expected stand in the data."""
    facts = {"where": error.where, "found": error.found, "expected": error.expected}
    return Finding(code, "error", role, str(TrtspecError(error.what, **facts)), error.fix, facts)


@dataclass(frozen=True)
class Verdict:
    """All findings about a pair and the facts they rest on."""

    findings: tuple[Finding, ...]
    facts: Mapping[str, Any]

    @property
    def verdict(self) -> Literal["pass", "warn", "fail"]:
        """Any error → fail, else any warning → warn, else pass."""
        severities = {finding.severity for finding in self.findings}
        return "fail" if "error" in severities else "warn" if "warning" in severities else "pass"

    @property
    def not_measured(self) -> int:
        """How many checks a missing file made impossible."""
        return sum(finding.code.endswith(NOT_MEASURED) for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "verdict": self.verdict,
            "not_measured": self.not_measured,
            "findings": [finding.as_dict() for finding in self.findings],
            "facts": dict(self.facts),
        }
