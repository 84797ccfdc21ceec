"""verify: is what is deployed what was published, and what a validation passed?

A folder of the build (repository, engine, checkpoint) is read against its manifest, and against a release record where
one is given; a report folder against the record in it, with the repository and the engines that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trtspec.errors import CheckFailed, ConfigError
from trtspec.release.record import RECORD, REPOSITORY, ReleaseRecord, StageRow, load_record
from trtspec.release.signing import SIGNATURES, Trust, check_signature, signatures
from trtspec.release.verify import (
    COMPILED,
    Fault,
    Progress,
    against_manifest,
    against_stage,
    compiled,
    policy_against,
    reports_against,
)
from trtspec.runner import Runner, SubprocessRunner
from trtspec.store import MANIFEST, read_manifest
from trtspec.triton.repository import POLICY_FILE
from trtspec.workflows.reporter import Reporter, Silent


@dataclass(frozen=True)
class Verified:
    """What was read and what was found."""

    folders: tuple[Path, ...]
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    """What could not be checked here."""
    signed: tuple[str, ...]
    """Tools whose signature was accepted."""
    absent: int = 0
    """Deployed folders of the record that are not here: of them nothing is known."""

    @property
    def exit_code(self) -> int:
        """0 all is as it was published, 1 something is not."""
        return 1 if self.faults else 0

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "holds": not self.faults,
            "folders": self.folders,
            "faults": [fault.model_dump(mode="json") for fault in self.faults],
            "notes": self.notes,
            "signed": self.signed,
            "absent": self.absent,
        }


def verify(
    folder: Path,
    record: Path | None = None,
    trust: Trust | None = None,
    reporter: Reporter | None = None,
    runner: Runner | None = None,
) -> Verified:
    """Read everything again and say what differs. ConfigError where there is nothing to verify."""
    reporter = reporter or Silent()
    home = folder if (folder / RECORD).is_file() else None
    if home is None and not (folder / MANIFEST).exists():
        raise ConfigError("nothing to verify here", where=folder, found=f"neither {MANIFEST} nor {RECORD}",
                          fix="give a folder that `build` or `validate` wrote")  # fmt: skip
    if home is None and record is not None:
        home = record.parent
    walk = _Walk(reporter)
    if home is None:
        walk.alone(folder)
    else:
        walk.released(load_record(record or home / RECORD), home, folder)
    if trust is not None:
        walk.signatures(home, folder, trust, runner or SubprocessRunner())
    return Verified(tuple(walk.folders), tuple(walk.faults), tuple(walk.notes), tuple(walk.signed), walk.absent)


class _Walk:
    """One verification as it goes on."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self.folders: list[Path] = []
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.signed: list[str] = []
        self.absent = 0
        self._repository: Path | None = None

    def alone(self, folder: Path) -> None:
        """A folder of the build, by its own manifest."""
        self.folders.append(folder)
        self.faults += against_manifest(folder, self._progress(folder))
        self._note_compiled(folder)
        if (folder / POLICY_FILE).is_file():
            self.notes.append(f"{POLICY_FILE} may change after a build: give --record to compare it with a release")

    def released(self, record: ReleaseRecord, home: Path, folder: Path) -> None:
        """What a record names: all of it from the report's folder, or the one folder that was given."""
        if folder == home:
            self.folders.append(home)
            self.faults += reports_against(home, record)
            for each in record.deployed:
                self._stage(home / each.folder, each, record)
            return
        stage = _stage_of(folder, record)
        if stage is None:
            raise ConfigError("the record does not know this folder", where=folder,
                              expected=", ".join(s.stage for s in record.stages))  # fmt: skip
        self._stage(folder, stage, record)

    def _stage(self, folder: Path, stage: StageRow, record: ReleaseRecord) -> None:
        if not folder.is_dir():
            self.absent += 1
            self.notes.append(f"{stage.stage}: not checked, there is no {folder}")
            return
        self.folders.append(folder)
        self.faults += against_stage(folder, stage, self._progress(folder))
        self._note_compiled(folder)
        if stage.stage == REPOSITORY:
            self._repository = folder
            self.faults += policy_against(folder, record)

    def signatures(self, home: Path | None, folder: Path, trust: Trust, runner: Runner) -> None:
        """Every signature beside the record, a fault where one is not accepted. ConfigError where there is none."""
        found = signatures(home) if home else []
        if home is None or not found:
            raise ConfigError("no signature to check", where=home or folder, fix="give the folder of a signed release")
        for tool in found:
            if tool == "model_signing" and self._repository is None:
                self.notes.append("the signature of the repository: not checked, the repository is not here")
                continue
            try:
                check_signature(tool, home, self._repository or folder, trust, runner, home / "verify.log")
            except CheckFailed as error:
                name = SIGNATURES[tool]
                self.faults.append(Fault(folder=str(home), file=name, kind="differs", detail=str(error)))
            else:
                self.signed.append(tool)

    def _note_compiled(self, folder: Path) -> None:
        count = compiled(folder)
        if count:
            self.notes.append(
                f"{folder}: {count} files that Python compiled ({COMPILED}) cannot be checked and are run in place of "
                "their sources; delete them, and serve with PYTHONDONTWRITEBYTECODE=1"
            )

    def _progress(self, folder: Path) -> Progress:
        return lambda done, total: self._reporter.progress(f"reading {folder.name}", done, total)


def _stage_of(folder: Path, record: ReleaseRecord) -> StageRow | None:
    """The stage of the record that this folder is, by what its manifest says it is."""
    manifest = read_manifest(folder) or {}
    title = str(manifest.get("stage", ""))
    return next((s for s in record.stages if s.stage == title), None)
