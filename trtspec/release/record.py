"""The release record: one document that ties a verdict to the files it was reached on, back to the source weights.

Every stage of a build left a manifest with the hashes of its files and the key of the stage before it. The record
gathers them, says whether each follows from the one before, and adds what was measured, the verdict, the policy in
force and the reports. `provenance` says the same in the words of in-toto.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from trtspec import __version__
from trtspec.config import ROLES, Role, RunConfig
from trtspec.hashing import sha256_of
from trtspec.measurement.documents import read_document
from trtspec.measurement.result import Estimate, Record, ResultDocument
from trtspec.release.gates import Judgement
from trtspec.release.report import FILES
from trtspec.release.rows import Verdict
from trtspec.store import MANIFEST, read_manifest
from trtspec.triton.repository import POLICY_FILE

RECORD = "record.json"
REPOSITORY = "model repository"


class FileRow(Record):
    """One file by its content."""

    name: str
    """Relative to the folder it belongs to, with forward slashes."""
    sha256: str
    size: int | None = None


class SourceRow(Record):
    """The model folder that a role was made from."""

    role: Role
    name: str
    """Hub id, or the name of the local folder."""
    revision: str | None
    """Commit of the hub repository; null for a local folder, which its files identify."""
    files: tuple[FileRow, ...]


class StageRow(Record):
    """One folder that a build published."""

    stage: str
    """Such as `engine of the target`."""
    folder: str
    """Relative to the folder of this record."""
    key: str
    """Hash of everything it was made from."""
    manifest_sha256: str
    created: str
    seconds: float
    trtspec: str
    command: tuple[str, ...]
    follows: bool | None
    """Whether it was made from the stage before it as that stands now; null where nothing says so."""
    files: tuple[FileRow, ...]


class PolicyRow(Record):
    """The one file of the repository that may change after it was published."""

    file: FileRow
    written: bool
    """Whether this validation wrote it; else it is what was in force before."""


class ReleaseRecord(Record):
    """What was released, or why it was not."""

    version: Literal[1] = 1
    pair: str
    created: str
    trtspec: str
    command: tuple[str, ...]
    verdict: Verdict
    headline: str
    conditions: str
    alpha: Estimate | None
    speedup: Estimate | None
    measured: str
    """When, UTC."""
    environment: dict[str, str]
    sources: tuple[SourceRow, ...]
    stages: tuple[StageRow, ...]
    """Check, checkpoints, engines and last the repository, as far as they are on this machine."""
    policy: PolicyRow | None
    reports: tuple[FileRow, ...]
    gaps: tuple[str, ...]
    """What the chain from weights to deployed files lacks; empty where it is whole."""

    @property
    def repository(self) -> StageRow | None:
        """The deployed folder."""
        return next((s for s in self.stages if s.stage == REPOSITORY), None)

    @property
    def deployed(self) -> tuple[StageRow, ...]:
        """What a server reads: the engines and the repository."""
        return tuple(s for s in self.stages if s.stage == REPOSITORY or s.stage.startswith("engine"))


def record_of(
    config: RunConfig, result: ResultDocument, judgement: Judgement, *, policy_written: bool
) -> ReleaseRecord:
    """The record of the validation whose reports were just written into `config.report_dir`."""
    home = config.report_dir
    stages, gaps = _stages(config, home)
    sources = tuple(_source(config, role, gaps) for role in ROLES)
    policy = config.repository_dir / POLICY_FILE
    return ReleaseRecord(
        pair=config.name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        trtspec=__version__,
        command=tuple(sys.argv),
        verdict=judgement.verdict,
        headline=judgement.headline(),
        conditions=result.conditions.summary(),
        alpha=judgement.alpha,
        speedup=judgement.speedup,
        measured=result.created,
        environment=result.environment,
        sources=sources,
        stages=stages,
        policy=PolicyRow(file=_row(policy, POLICY_FILE), written=policy_written) if policy.is_file() else None,
        reports=tuple(_row(home / name, name) for name in FILES if (home / name).is_file()),
        gaps=tuple(gaps),
    )


def load_record(path: Path) -> ReleaseRecord:
    """Read a record; EvidenceError where it is none."""
    return read_document(ReleaseRecord, path, "record", "release record")


def _stages(config: RunConfig, home: Path) -> tuple[tuple[StageRow, ...], list[str]]:
    """Each stage that is there, in the order of a build, and what is missing."""
    found: list[StageRow] = []
    gaps: list[str] = []
    keys: dict[str, str] = {}
    for name, folder, needs in _chain(config):
        manifest = read_manifest(folder)
        if manifest is None:
            gaps.append(f"{name}: not on this machine, or without a readable manifest")
            continue
        keys[name] = str(manifest.get("key"))
        follows = _follows(manifest, {need: keys.get(need) for need in needs})
        if follows is False:
            gaps.append(f"{name}: was made from another {' and '.join(needs)} than is there now")
        found.append(_stage(name, folder, home, manifest, follows))
    return tuple(found), gaps


def _chain(config: RunConfig) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """(stage, folder, the stages whose keys its inputs must hold)."""
    yield "check", config.output.engines / config.name / "check", ()
    for role in ROLES:
        yield f"checkpoint of the {role}", config.checkpoint_dir(role), ()
        yield f"engine of the {role}", config.engine_dir(role), (f"checkpoint of the {role}",)
    yield REPOSITORY, config.repository_dir, tuple(f"engine of the {role}" for role in ROLES)


def _follows(manifest: dict[str, Any], keys: dict[str, str | None]) -> bool | None:
    """Whether the manifest's inputs hold these keys; None where there are none, or one is not known."""
    if not keys or None in keys.values():
        return None
    inputs = manifest.get("inputs", {})
    engines = inputs.get("engines", {})
    held = {inputs.get("checkpoint"), *(engines.values() if isinstance(engines, dict) else ())}
    return held >= set(keys.values())


def _stage(name: str, folder: Path, home: Path, manifest: dict[str, Any], follows: bool | None) -> StageRow:
    files = manifest["files"].items()
    return StageRow(
        stage=name,
        folder=Path(os.path.relpath(folder, home)).as_posix(),
        key=str(manifest["key"]),
        manifest_sha256=sha256_of(folder / MANIFEST),
        created=str(manifest["created"]),
        seconds=float(manifest["seconds"]),
        trtspec=str(manifest["trtspec"]),
        command=tuple(map(str, manifest["command"])),
        follows=follows,
        files=tuple(FileRow(name=file, sha256=facts["sha256"], size=facts["size"]) for file, facts in files),
    )


def _source(config: RunConfig, role: Role, gaps: list[str]) -> SourceRow:
    """Files of the model folder as the build read them, from the manifests of the check and of the checkpoint."""
    model = config.pair[role]
    check = read_manifest(config.output.engines / config.name / "check") or {}
    checkpoint = read_manifest(config.checkpoint_dir(role)) or {}
    hashes = check.get("inputs", {}).get("files", {}).get(role, {}) | _hashes(checkpoint)
    if not hashes:
        gaps.append(f"source of the {role}: no manifest says which files it was made from")
    files = tuple(FileRow(name=name, sha256=digest) for name, digest in sorted(hashes.items()))
    name = model.hub or (model.path.name if model.path else role)
    return SourceRow(role=role, name=name, revision=model.revision, files=files)


def _hashes(manifest: dict[str, Any]) -> dict[str, str]:
    files = manifest.get("inputs", {}).get("files", {})
    return (
        {name: digest for name, digest in files.items() if isinstance(digest, str)} if isinstance(files, dict) else {}
    )


def _row(path: Path, name: str) -> FileRow:
    return FileRow(name=name, sha256=sha256_of(path), size=path.stat().st_size)
