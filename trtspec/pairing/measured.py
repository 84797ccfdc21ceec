"""The acceptance to plan with: measured by `trtspec profile`, given in the configuration, or a range. Never assumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trtspec.analysis.acceptance import expected_tokens, tokens_from_positions
from trtspec.checkpoint.facts import CONFIG
from trtspec.config import RunConfig
from trtspec.hashing import HashMemo

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
PROFILE = "profile.json"
IDENTITY = (CONFIG, "*.safetensors")
"""Files whose content identifies a model."""


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


def acceptance_basis(config: RunConfig, folders: Mapping[str, Path]) -> Basis:
    """Given in the configuration, else the profile's, else the range ALPHAS.

    `folders`: model folders by role. A profile of other files, or under other sampling, is left out.
    """
    if config.checks.acceptance is not None:
        return Basis((Acceptance(config.checks.acceptance),), "given as checks.acceptance", known=True)
    document = _document(config.report_dir / PROFILE)
    if document is None or not any(_figures(_row(document, rule)) for rule in RULES):
        return Basis(_RANGE, "range", known=False)
    why = _not_of(document, config, folders)
    if why is not None:
        return Basis(_RANGE, f"range ({PROFILE} {why})", known=False)
    row = _row(document, rule_of(config))
    found = _figures(row)
    if found is None:
        return Basis(_RANGE, "range", known=False)
    beyond = f", positions 1-{len(found.per_position)} as measured" if found.per_position else ""
    return Basis((found,), f"{_told(document, row)}{beyond}", known=True)


RULES = ("tokens", "tokens-independent", "logits")
"""Rules of acceptance that a profile may hold figures of."""
_RANGE = tuple(Acceptance(alpha) for alpha in ALPHAS)


def rule_of(config: RunConfig) -> str:
    """Which of a profile's rules of acceptance this configuration will be served with.

    Drawn tokens agree more often where both models draw with the same random numbers; the served pipeline gives each
    call a seed of its own.
    """
    if config.validation.temperature == 0.0 or config.validation.top_k == 1:
        return "tokens"
    if config.speculation.acceptance == "logits":
        return "logits"
    return "tokens-independent"


def sampling_of(config: RunConfig) -> tuple[float, int, float]:
    """(temperature, top_k, top_p) that a profile must have been measured with; greedy has one spelling."""
    v = config.validation
    greedy = v.temperature == 0.0 or v.top_k == 1
    return (0.0, 0, 1.0) if greedy else (v.temperature, v.top_k, v.top_p)


def sampling_text(temperature: float, top_k: int, top_p: float) -> str:
    """`greedy`, or temperature, top-k (0: no limit) and top-p in words."""
    if temperature == 0.0:
        return "greedy"
    text = f"temperature {temperature:g}" + (f", top-k {top_k}" if top_k else "")
    return text + (f", top-p {top_p:g}" if top_p < 1.0 else "")


def file_hashes(folder: Path, memo: HashMemo) -> dict[str, str]:
    """Name: SHA-256 of the files that identify a model."""
    files = sorted({p for pattern in IDENTITY for p in folder.glob(pattern) if p.is_file()})
    return {path.name: memo.sha256(path) for path in files}


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _not_of(document: Mapping[str, Any], config: RunConfig, folders: Mapping[str, Path]) -> str | None:
    """Why a profile says nothing about this pair as it will be served; None when it does."""
    measured = _sampling(document)
    if measured != sampling_of(config):
        how = "in a way it does not tell" if measured is None else f"for other sampling: {sampling_text(*measured)}"
        return f"was measured {how}"
    other = [role for role, folder in folders.items() if not _same_model(document.get(role), folder)]
    return f"is not of these files of {' and '.join(other)}" if other else None


def _sampling(document: Mapping[str, Any]) -> tuple[float, int, float] | None:
    given = document.get("conditions")
    if not isinstance(given, dict):
        return None
    values = [given.get(key) for key in ("temperature", "top_k", "top_p")]
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return None
    temperature, top_k, top_p = numbers
    return (0.0, 0, 1.0) if temperature == 0 else (temperature, int(top_k), top_p)


def _same_model(record: Any, folder: Path) -> bool:
    """Whether all files that identify the model are those that were measured; the small one is compared first."""
    files = record.get("files") if isinstance(record, dict) else None
    path = folder / CONFIG
    try:
        if not isinstance(files, dict) or not path.is_file() or _memo().sha256(path) != files.get(CONFIG):
            return False
        return file_hashes(folder, _memo()) == files
    except OSError:
        return False


@lru_cache(maxsize=1)
def _memo() -> HashMemo:
    # The profile's own run left the hashes of the weights there, so nothing large is read again.
    return HashMemo()


def _told(document: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """`… on 300 prompts (95 %: 0.71-0.76), greedy, K up to 8, 2026-11-30`, as far as the document tells."""
    overall, conditions = document["overall"], document["conditions"]
    said = ["measured by trtspec profile"]
    if type(overall.get("prompts")) is int:
        said[0] += f" on {overall['prompts']:,} prompts"
    alpha = row["alpha"]
    low, high = (_share(alpha.get(end)) for end in ("low", "high")) if isinstance(alpha, dict) else (None, None)
    if low is not None and high is not None:
        said[0] += f" (95 %: {low:.2f}-{high:.2f})"
    said.append(sampling_text(*_sampling(document) or (0.0, 0, 1.0)))
    if type(conditions.get("k_max")) is int:
        said.append(f"K up to {conditions['k_max']}")
    if isinstance(document.get("created"), str):
        said.append(document["created"][:10])
    return ", ".join(said)


def _row(document: Mapping[str, Any], rule: str) -> Mapping[str, Any]:
    """Figures of the longest rounds that were replayed, over all domains; empty where there are none."""
    overall = document.get("overall")
    rules = overall.get("rules") if isinstance(overall, dict) else None
    rows = rules.get(rule) if isinstance(rules, dict) else None
    row = rows[-1] if isinstance(rows, list) and rows else None
    return row if isinstance(row, dict) else {}


def _figures(row: Mapping[str, Any]) -> Acceptance | None:
    """α and the shares of positions."""
    alpha = _share(row.get("alpha"))
    return None if alpha is None else Acceptance(alpha, _shares(row.get("per_position")))


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
