"""Can two results be compared? Every condition that α or speed depends on, and that differs, is named."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from typing import NamedTuple

from trtspec.measurement.result import DomainResult, ResultDocument
from trtspec.release.rows import GateRow, make_row

_CONDITIONS = (
    *("k", "acceptance", "concurrency", "temperature", "top_k", "top_p", "ignore_eos", "streamed", "modes"),
    *("backend", "compute_dtype", "gpu", "gpu_count"),
)
# What measures, not what is measured; the draft, which is what is compared, and all that changes with it.
_NO_MATTER = frozenset({"python", "numpy", "scipy", "machine", "cpu", "cpus", "tritonclient", "trtspec"})
_OF_THE_DRAFT = ("draft", "repository key", "model config")
VERSIONS = "versions"
DATASETS = "datasets"
RULE = "baseline.comparable"


class Mismatch(NamedTuple):
    """`key` is what `--allow-different` takes."""

    key: str
    sentence: str


def differences(a: ResultDocument, b: ResultDocument) -> tuple[str, ...]:
    """The mismatches of two results as sentences."""
    return tuple(found.sentence for found in mismatches(a, b))


def mismatches(result: ResultDocument, baseline: ResultDocument) -> tuple[Mismatch, ...]:
    """Every condition in which two results differ."""
    return (*_conditions(result, baseline), *_versions(result, baseline), *_datasets(result, baseline))


def keys(result: ResultDocument, baseline: ResultDocument) -> frozenset[str]:
    """What `--allow-different` may name."""
    return frozenset({*_CONDITIONS, VERSIONS, DATASETS, *_environment(result), *_environment(baseline)})


def comparable_row(result: ResultDocument, baseline: ResultDocument, allowed: Collection[str], what: str) -> GateRow:
    """Invalid when a mismatch is not allowed: the difference of the figures would not be the draft's doing."""
    found = mismatches(result, baseline)
    refused = [m for m in found if not _is_allowed(m, allowed, result, baseline)]
    if refused:
        named = "; ".join(m.sentence for m in refused)
        names = " ".join(f"--allow-different {key}" for key in dict.fromkeys(m.key for m in refused))
        reason = f"not comparable with the {what}: {named}; measure both alike, or {names}"
        return make_row(RULE, "comparable", what, "invalid", reason)
    waved = f"; allowed to differ: {'; '.join(m.sentence for m in found)}" if found else ""
    same = "versions, hardware, prompts, sampling and K are the same" if not found else "all else is the same"
    return make_row(RULE, "comparable", what, "pass", f"{same}{waved}")


def _is_allowed(found: Mismatch, allowed: Collection[str], a: ResultDocument, b: ResultDocument) -> bool:
    version = found.key in _environment(a) or found.key in _environment(b)
    return found.key in allowed or (version and VERSIONS in allowed)


def _conditions(result: ResultDocument, baseline: ResultDocument) -> Iterator[Mismatch]:
    for key in _CONDITIONS:
        now, then = getattr(result.conditions, key), getattr(baseline.conditions, key)
        if now != then:
            yield Mismatch(key, f"{key.replace('_', ' ')} is {_told(now)}, was {_told(then)}")


def _versions(result: ResultDocument, baseline: ResultDocument) -> Iterator[Mismatch]:
    now, then = _environment(result), _environment(baseline)
    for key in sorted(now.keys() | then.keys()):
        if now.get(key) != then.get(key):
            name = key.replace("-", " ") if key.endswith("-key") else key
            yield Mismatch(key, f"{name} is {now.get(key, 'not there')}, was {then.get(key, 'not there')}")


def _environment(result: ResultDocument) -> dict[str, str]:
    """Versions and hashes that must agree, by the names that `--allow-different` takes."""
    return {
        key.replace(" ", "-"): value
        for key, value in result.environment.items()
        if key not in _NO_MATTER and not any(part in key for part in _OF_THE_DRAFT)
    }


def _datasets(result: ResultDocument, baseline: ResultDocument) -> Iterator[Mismatch]:
    """By the hash of the file; a domain that only one side has counts too."""
    now, then = ({d.domain: d for d in side.domains} for side in (result, baseline))
    for domain in sorted(now.keys() | then.keys()):
        if domain not in now or domain not in then:
            yield Mismatch(DATASETS, f"domain {domain} is only in the {'result' if domain in now else 'baseline'}")
            continue
        a, b = _prompts(result, now[domain]), _prompts(baseline, then[domain])
        if a is None or b is None:
            yield Mismatch(DATASETS, f"which prompts of {domain} were asked is not recorded")
        elif a != b:
            yield Mismatch(DATASETS, f"the prompts of {domain} are of {a}, were of {b}")


def _prompts(result: ResultDocument, domain: DomainResult) -> str | None:
    """File and hash; of a result that names no file, the hashes of its prompts."""
    files = [row for row in result.datasets if row.domain == domain.domain]
    if files:
        return f"{files[0].file} ({files[0].sha256[:12]})"
    asked = sorted(row.sha256 for row in domain.rows)
    if not all(asked):
        return None
    return hashlib.sha256("".join(asked).encode()).hexdigest()[:12]


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
