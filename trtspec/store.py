"""Results on disk: folders that appear whole or not at all, keyed by everything they were made from.

A stage fills a partial folder beside its final name; the folder gets a manifest and is renamed. A folder whose
manifest carries the wanted key and whose files are unchanged is reused. A killed run leaves at most a partial
folder, which the next run of the same stage removes while it holds the stage's lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trtspec import __version__
from trtspec.errors import BuildError, ConfigError
from trtspec.hashing import HashMemo

MANIFEST = "trtspec-manifest.json"
MANIFEST_VERSION = 1


def content_key(**facts: object) -> str:
    """SHA-256 over canonical JSON of `facts`; equal facts give equal keys in every process."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write_atomic(path: Path, text: str) -> None:
    """Write beside, flush to disk, rename: readers see the old file or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)  # mkstemp makes it private; a result is as readable as its folder
        os.replace(name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


@dataclass(frozen=True)
class Stage:
    """One folder to have: what it is called, where it goes, and what it depends on.

    `inputs` is everything the result depends on, chained: a later stage holds the earlier stage's key.
    `mutable` names files (relative) that may change after publishing and are not part of the content.
    """

    title: str
    out: Path
    inputs: Mapping[str, object]
    mutable: frozenset[str] = field(default=frozenset())

    @property
    def key(self) -> str:
        """Content key of the inputs."""
        return content_key(**self.inputs)


@dataclass(frozen=True)
class Outcome:
    """What `publish` did. `reason` says why a folder was built although one stood there."""

    stage: Stage
    action: str  # "built" or "reused"
    seconds: float
    reason: str = ""


def publish(
    stage: Stage, fill: Callable[[Path], None], memo: HashMemo, *, notice: Callable[[str], None] | None = None
) -> Outcome:
    """Have `stage.out` with content of `stage.key`: reuse it, or fill a partial folder and rename it.

    Raises what `fill` raises, with nothing left at `stage.out` that was not there before, BuildError for faults of
    the disk, and ConfigError when something stands there that is not ours.
    """
    start = time.perf_counter()
    try:
        with lock(stage.out, notice):
            _refuse_foreign(stage.out)
            stale = staleness(stage, memo)
            if not stale:
                return Outcome(stage, "reused", time.perf_counter() - start)
            remove_partials(stage.out)
            partial = stage.out.parent / f".{stage.out.name}.partial-{os.getpid()}"
            partial.mkdir()
            try:
                fill(partial)
                seconds = time.perf_counter() - start
                write_atomic(partial / MANIFEST, _manifest(stage, partial, memo, seconds))
                _sync_folder(partial)
                _replace(partial, stage.out)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            memo.save()
            return Outcome(stage, "built", seconds, "" if stale == "absent" else stale)
    except OSError as error:
        raise BuildError(
            f"{stage.title} stopped: {error.strerror or error}",
            where=error.filename or stage.out,
            fix="nothing half-written was kept; mend it and run the same command again",
        ) from error


def _refuse_foreign(out: Path) -> None:
    """ConfigError when something stands at `out` that no build put there; replacing it would destroy it."""
    if out.is_dir() and ((out / MANIFEST).exists() or not any(out.iterdir())):
        return
    if out.exists() or out.is_symlink():
        raise ConfigError(
            "something stands here that trtspec did not make",
            where=out,
            found=f"no {MANIFEST}",
            fix="move it away, or choose another folder: --out, or `output` in the configuration",
        )


def staleness(stage: Stage, memo: HashMemo) -> str:
    """Why `stage.out` cannot be reused, or "" if it can. "absent" when there is none."""
    if not stage.out.exists():
        return "absent"
    manifest = read_manifest(stage.out)
    if manifest is None:
        return "it has no readable manifest"
    if manifest.get("key") != stage.key:
        changed = changed_inputs(manifest.get("inputs", {}), stage.inputs)
        return f"changed: {', '.join(changed)}" if changed else "made by another version"
    faults = verify_folder(stage.out, memo, manifest)
    return faults[0] if faults else ""


def changed_inputs(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Names of the inputs that differ, compared as they are stored."""
    stored = json.loads(json.dumps(dict(new), default=str))
    return sorted(name for name in {*old, *stored} if old.get(name) != stored.get(name))


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished folder; None where there is none or it is broken."""
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("files"), dict) else None


def verify_folder(folder: Path, memo: HashMemo, manifest: dict[str, Any] | None = None) -> list[str]:
    """What differs from the manifest, a line each. A file of unchanged size and mtime is not read again."""
    manifest = manifest or read_manifest(folder)
    if manifest is None:
        return [f"{folder} has no readable manifest"]
    faults = []
    for name, wanted in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name} is gone")
        elif path.stat().st_size != wanted["size"]:
            faults.append(f"{name} has {path.stat().st_size} bytes instead of {wanted['size']}")
        elif path.stat().st_mtime_ns != wanted["mtime_ns"] and memo.sha256(path) != wanted["sha256"]:
            faults.append(f"{name} has other content than was published")
    return faults


def _manifest(stage: Stage, folder: Path, memo: HashMemo, seconds: float) -> str:
    files = {
        name: {
            "sha256": memo.sha256(folder / name, lasting=stage.out / name),
            "size": (folder / name).stat().st_size,
            "mtime_ns": (folder / name).stat().st_mtime_ns,
        }
        for name in _files(folder)
        if name not in stage.mutable
    }
    document = {
        "version": MANIFEST_VERSION,
        "stage": stage.title,
        "key": stage.key,
        "inputs": dict(stage.inputs),
        "files": files,
        "mutable": sorted(stage.mutable),
        "command": sys.argv,
        "trtspec": __version__,
        "python": sys.version.split()[0],
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
    }
    return json.dumps(document, indent=1, default=str) + "\n"


def _files(folder: Path) -> Sequence[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def _replace(partial: Path, out: Path) -> None:
    """Put `partial` in the place of `out`. A kill between the renames leaves no `out`, never a mixed one."""
    if out.exists():
        old = out.parent / f".{out.name}.partial-old-{os.getpid()}"
        os.rename(out, old)
        os.rename(partial, out)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(partial, out)
    _sync_folder(out.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_partials(out: Path) -> None:
    """Remove what killed runs left beside `out`. Call it with the lock held."""
    for left in out.parent.glob(f".{out.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def lock(out: Path, notice: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the one lock of the output `out`; waits for another process that has it and says so."""
    out.parent.mkdir(parents=True, exist_ok=True)
    path = out.parent / f".{out.name}.lock"
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if notice:
                handle.seek(0)
                notice(f"waiting: process {handle.read().strip() or '?'} is working on {out}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        handle.truncate()
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        # The file stays: unlinking it would let a waiter and a newcomer hold two different locks.
        yield
