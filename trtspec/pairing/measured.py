"""The acceptance to plan with: measured by `trtspec profile`, given in the configuration, or a range. Never assumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.analysis.acceptance import expected_tokens, tokens_from_positions
from trtspec.checkpoint.facts import CONFIG
from trtspec.config import RunConfig
from trtspec.hashing import sha256_of

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
PROFILE = "profile.json"


@dataclass(frozen=True)
class Acceptance:
    """One assumption about acceptance. `per_position` is measured P(position i accepted), where there is one."""

    alpha: float
    per_position: tuple[float, ...] = ()

    def tokens(self, k: int) -> float:
        """Expected tokens of a round of k drafts.

        From the measured positions; those beyond are each as likely, given the one before, as the last measured one.
        """
        if not self.per_position:
            return expected_tokens(self.alpha, k)
        shares = list(self.per_position[:k])
        last = self._last_conditional()
        while len(shares) < k:
            shares.append(shares[-1] * last)
        return tokens_from_positions(shares)

    def _last_conditional(self) -> float:
        if len(self.per_position) == 1:
            return self.per_position[0]
        before, last = self.per_position[-2:]
        return last / before if before else 0.0


@dataclass(frozen=True)
class Basis:
    """The acceptances that a plan is computed for, and where they come from."""

    rows: tuple[Acceptance, ...]
    source: str
    known: bool
    """Measured or given: one row that findings may judge by. False: a range."""


def acceptance_basis(config: RunConfig, folders: Sequence[tuple[str, Path]] = ()) -> Basis:
    """Given in the configuration, else the profile's, else the range ALPHAS.

    `folders`: (role, model folder); a profile of another config.json is not this pair's and is left out.
    """
    if config.checks.acceptance is not None:
        return Basis((Acceptance(config.checks.acceptance),), "given as checks.acceptance", known=True)
    path = config.report_dir / PROFILE
    document = _document(path)
    found = None if document is None else _figures(document, rule_of(config))
    if document is None or found is None:
        return Basis(_RANGE, "range", known=False)
    other = [role for role, folder in folders if not _same_model(document, role, folder)]
    if other:
        return Basis(_RANGE, f"range ({PROFILE} is of another {' and '.join(other)})", known=False)
    beyond = f", positions 1-{len(found.per_position)} as measured" if found.per_position else ""
    return Basis((found,), f"measured by trtspec profile{beyond}", known=True)


_RANGE = tuple(Acceptance(alpha) for alpha in ALPHAS)


def rule_of(config: RunConfig) -> str:
    """Which of a profile's rules of acceptance this configuration will be served with.

    Drawn tokens agree more often where both models draw with the same random numbers, as the reference engine does.
    """
    if config.validation.temperature == 0.0 or config.validation.top_k == 1:
        return "tokens"
    if config.speculation.acceptance == "logits":
        return "logits"
    return "tokens" if config.engine.backend == "reference" else "tokens-independent"


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _same_model(document: dict[str, Any], role: str, folder: Path) -> bool:
    """Whether the model's config.json is the one that was measured; true where either is not known."""
    record = document.get(role)
    files = record.get("files") if isinstance(record, dict) else None
    measured = files.get(CONFIG) if isinstance(files, dict) else None
    path = folder / CONFIG
    return measured is None or not path.is_file() or sha256_of(path) == measured


def _figures(document: dict[str, Any], rule: str) -> Acceptance | None:
    """α and the shares of the longest rounds that were replayed, over all domains."""
    overall = document.get("overall")
    rules = overall.get("rules") if isinstance(overall, dict) else None
    rows = rules.get(rule) if isinstance(rules, dict) else None
    row = rows[-1] if isinstance(rows, list) and rows else None
    alpha = _share(row.get("alpha")) if isinstance(row, dict) else None
    return None if row is None or alpha is None else Acceptance(alpha, _shares(row.get("per_position")))


def _share(value: object) -> float | None:
    if isinstance(value, dict):
        value = value.get("point")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)


def _shares(value: object) -> tuple[float, ...]:
    """The leading positions that were measured; they can only fall."""
    found: list[float] = []
    for item in value if isinstance(value, Sequence) and not isinstance(value, str) else ():
        share = _share(item)
        if share is None or (found and share > found[-1]):
            break
        found.append(share)
    return tuple(found)
