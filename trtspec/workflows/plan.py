"""plan: everything `build` would do, with bytes, memory and speed, from configuration files alone. Touches nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import TrtspecError
from trtspec.hashing import HashMemo
from trtspec.store import Stage, read_manifest, staleness
from trtspec.workflows.build import verdict_on
from trtspec.workflows.check import folders_of
from trtspec.workflows.stages import Stages

if TYPE_CHECKING:
    from trtspec.checkpoint.facts import ModelFacts
    from trtspec.pairing.findings import Verdict


@dataclass(frozen=True)
class PlannedFile:
    """One file of a stage; `nbytes` is predicted, None where it cannot be."""

    name: str
    nbytes: int | None


@dataclass(frozen=True)
class PlannedStage:
    """One folder that `build` would have, in the order of the build."""

    title: str
    role: Role | None
    folder: Path
    action: str
    """`build`, `up to date`, `rebuild: <why>`, or `unknown: <why>`."""
    files: tuple[PlannedFile, ...] = ()
    note: str = ""
    commands: tuple[tuple[str, ...], ...] = ()
    """What would be run outside this program, one argument list each."""
    runs: str = ""
    """What the commands are made for, such as a version and whether it was found here."""

    @property
    def nbytes(self) -> int | None:
        """Bytes on disk; None when a file's are not known."""
        sizes = [file.nbytes for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True)
class Planned:
    """What the parts of a plan are made from."""

    config: RunConfig
    folders: dict[Role, Path]
    facts: dict[Role, ModelFacts | None]
    stages: Stages | None
    """None where a model folder is not on this machine."""

    def action(self, stage: Callable[[Stages], Stage], folder: Path) -> str:
        """What the build would do with this folder. Source files are read (hashed) only if there is one already."""
        if not folder.exists():
            return "build"
        if self.stages is None or read_manifest(folder) is None:
            return "unknown: the model is not here" if self.stages is None else "rebuild: it has no readable manifest"
        try:
            wanted = stage(self.stages)
            why = staleness(wanted, self.stages.memo)
        except TrtspecError as error:
            return f"unknown: {error.what}"
        return f"rebuild: {why}" if why else "up to date"


@dataclass(frozen=True)
class Plan:
    """The whole plan; `verdict` is that of `trtspec check`."""

    config: RunConfig
    stages: tuple[PlannedStage, ...]
    verdict: Verdict
    memory: dict[str, Any] | None
    economics: dict[str, Any] | None = field(default=None)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`. Bytes, tokens, milliseconds."""
        return {
            "name": self.config.name,
            "backend": self.config.engine.backend,
            "check": {
                "verdict": self.verdict.verdict,
                "findings": [f.as_dict() for f in self.verdict.findings if f.severity != "info"],
            },
            "stages": [asdict(stage) | {"bytes": stage.nbytes} for stage in self.stages],
            "hardware": {"gpu": self.config.hardware.spec.title, "count": self.config.hardware.count},
            "memory": self.memory,
            "economics": self.economics,
        }


def plan_config(config: RunConfig) -> Plan:
    """Plan the build of a configuration. Needs no weights; a hub model that is not here uses its published facts."""
    from trtspec.pairing.model import Model
    from trtspec.workflows.planned_stages import PARTS

    folders = folders_of(config)
    here = all(folders[role].is_dir() for role in ROLES)
    planned = Planned(
        config,
        folders,
        {role: Model.read(role, folders[role], config).facts for role in ROLES},
        Stages(config, folders, HashMemo()) if here else None,
    )
    verdict = verdict_on(config, folders)
    return Plan(
        config,
        tuple(stage for part in PARTS for stage in part(planned)),
        verdict,
        _memory(planned),
        verdict.facts.get("economics"),
    )


def _memory(planned: Planned) -> dict[str, Any] | None:
    from trtspec.pairing.memory import document, machine_document
    from trtspec.pairing.placement import plan_machine, plan_memory

    target, draft = planned.facts["target"], planned.facts["draft"]
    if target is None or draft is None:
        return None
    facts: dict[Role, ModelFacts] = {"target": target, "draft": draft}
    if planned.config.engine.backend == "reference":
        return machine_document(plan_machine(facts, planned.config))
    plan = plan_memory(facts, planned.config)
    return None if plan is None else document(plan)
