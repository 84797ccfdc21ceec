"""Are these still the files that were published? Every byte is read again; nothing is taken from a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from trtspec.hashing import sha256_of
from trtspec.measurement.result import Record
from trtspec.release.record import FileRow, ReleaseRecord, StageRow
from trtspec.store import MANIFEST, content_key, read_manifest

Kind = Literal["differs", "missing", "extra", "unreadable"]
Progress = Callable[[int, int], None]
COMPILED = "__pycache__"
"""Python may write it beside the models when a server runs: no fault, and nothing that a manifest can vouch for."""


class Fault(Record):
    """One file that is not as it was published."""

    folder: str
    file: str
    kind: Kind
    detail: str

    def __str__(self) -> str:
        """`policy.json differs: …`"""
        return f"{self.file} {self.kind}: {self.detail}" if self.detail else f"{self.file} {self.kind}"


def against_manifest(folder: Path, progress: Progress | None = None) -> list[Fault]:
    """What differs from the folder's own manifest. Files that may change (`mutable`) only have to be there."""
    manifest = read_manifest(folder)
    if manifest is None:
        return [_fault(folder, MANIFEST, "unreadable", "no manifest, or a broken one")]
    try:
        wanted = [FileRow(name=n, sha256=f["sha256"], size=f["size"]) for n, f in manifest["files"].items()]
        mutable = {str(name) for name in manifest.get("mutable", ())}
        key = content_key(**manifest.get("inputs", {}))
    except (TypeError, KeyError, ValueError):  # JSON, and not what `build` writes
        return [_fault(folder, MANIFEST, "unreadable", "no manifest, or a broken one")]
    faults = list(_compared(folder, wanted, progress))
    if key != manifest.get("key"):
        faults.append(_fault(folder, MANIFEST, "differs", "its key is not that of its inputs: it was edited"))
    faults += [_fault(folder, name, "missing", "") for name in sorted(mutable) if not (folder / name).is_file()]
    known = {row.name for row in wanted} | mutable | {MANIFEST}
    return faults + [_fault(folder, name, "extra", "was not published") for name in _others(folder, known)]


def against_stage(folder: Path, stage: StageRow, progress: Progress | None = None) -> list[Fault]:
    """What differs from the record: the folder against its manifest, and the manifest against the record."""
    faults = against_manifest(folder, progress)
    path = folder / MANIFEST
    if path.is_file() and sha256_of(path) != stage.manifest_sha256:
        faults.append(_fault(folder, MANIFEST, "differs", "it is not the manifest of the release"))
        # The manifest cannot be trusted then: the record itself holds every hash.
        faults += [f for f in _compared(folder, stage.files, None) if f not in faults]
    return faults


def policy_against(repository: Path, record: ReleaseRecord) -> list[Fault]:
    """The policy file: no part of the repository's content, but of the release."""
    if record.policy is None:
        return []
    return list(_compared(repository, [record.policy.file], None))


def compiled(folder: Path) -> int:
    """Files in `__pycache__`, which were not checked."""
    return sum(1 for path in folder.rglob(f"{COMPILED}/*") if not path.is_dir())


def reports_against(home: Path, record: ReleaseRecord) -> list[Fault]:
    """The reports that lie beside the record."""
    return list(_compared(home, record.reports, None))


def _compared(folder: Path, wanted: Iterable[FileRow], progress: Progress | None) -> Iterator[Fault]:
    rows = list(wanted)
    total, done = sum(row.size or 0 for row in rows), 0
    for row in rows:
        detail = _difference(folder, row)
        if detail is not None:
            yield _fault(folder, row.name, *detail)
        done += row.size or 0
        if progress:
            progress(done, total)


def _difference(folder: Path, row: FileRow) -> tuple[Kind, str] | None:
    name = PurePosixPath(row.name)
    if name.is_absolute() or ".." in name.parts:
        return "unreadable", "the name leads out of the folder"
    path = folder / name
    if not path.is_file():
        return "missing", ""
    try:
        size = path.stat().st_size
        if row.size is not None and size != row.size:
            return "differs", f"{size:,} bytes instead of {row.size:,}"
        digest = sha256_of(path)
    except OSError as error:
        return "unreadable", error.strerror or str(error)
    return None if digest == row.sha256 else ("differs", f"sha256 {digest[:12]}… instead of {row.sha256[:12]}…")


def _others(folder: Path, known: set[str]) -> list[str]:
    """Files that nobody published. A link counts as a file, wherever it leads."""
    found = (p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())
    names = (p.relative_to(folder).as_posix() for p in found if COMPILED not in p.relative_to(folder).parts)
    return sorted(set(names) - known)


def _fault(folder: Path, file: str, kind: Kind, detail: str) -> Fault:
    return Fault(folder=str(folder), file=file, kind=kind, detail=detail)
