"""Which GPUs and which processes each model gets, and how the server is started: decided from the pair, with reasons.

TensorRT-LLM's backend looks at `gpu_device_ids` only, never at `instance_group`. Two models need an orchestrator: one
server, which starts a process per rank of each model; `leader` starts a server per rank and can hold models of equal
size only. Fast logits need an orchestrator whose rank processes are started with it: rank 0 is the server, then come
the draft's ranks, then the target's (TensorRT-LLM examples/draft_target_model/README.md, launch_triton_server.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import ConfigError

Mode = Literal["orchestrator", "leader"]
Ids = tuple[int, ...]


@dataclass(frozen=True)
class Devices:
    """Ids in the order of each model's ranks."""

    mode: Mode
    spawns: bool
    """The orchestrator starts the ranks' processes itself."""
    world_size: int
    """Processes that the launch line starts."""
    gpus: Mapping[Role, Ids]
    why: str
    participants: Mapping[Role, Ids] = field(default_factory=dict)
    """MPI ranks; empty unless `spawns` is off."""

    @property
    def shared(self) -> bool:
        """Both models have a GPU in common."""
        return bool(set(self.gpus["draft"]) & set(self.gpus["target"]))

    @property
    def needed(self) -> int:
        """GPUs that must be visible."""
        return max(max(ids) for ids in self.gpus.values()) + 1


def devices(config: RunConfig, *, separate: bool) -> Devices:
    """`separate`: the draft's GPUs come after the target's. ConfigError for ids that do not fit the models."""
    worlds = _worlds(config)
    mode, why = _mode(config, worlds)
    fast = config.speculation.fast_logits
    gpus = {role: _gpus(config, role, worlds, separate) for role in ROLES}
    participants = _participants(config, worlds)
    return Devices(
        mode=mode,
        spawns=mode == "orchestrator" and not fast,
        world_size=1 + sum(worlds.values()) if fast else worlds["target"] if mode == "leader" else 1,
        gpus=gpus,
        why=why,
        participants=participants,
    )


def _worlds(config: RunConfig) -> dict[Role, int]:
    return {role: config.pair[role].parallelism.world_size for role in ROLES}


def _mode(config: RunConfig, worlds: Mapping[Role, int]) -> tuple[Mode, str]:
    wanted, fast = config.serving.mode, config.speculation.fast_logits
    sizes = f"the draft has {_ranks(worlds['draft'])}, the target {worlds['target']}"
    if wanted == "leader":
        if fast:
            raise ConfigError("fast logits need an orchestrator", where="serving.mode", found="leader",
                              fix="set serving.mode to auto, or speculation.fast_logits to false")  # fmt: skip
        if worlds["draft"] != worlds["target"]:
            raise ConfigError(f"in leader mode both models need equally many ranks; {sizes}", where="serving.mode",
                              found="leader", fix="set serving.mode to auto")  # fmt: skip
        return "leader", f"as configured; {sizes}"
    for role in ROLES:
        nodes = config.serving.parameters(role).num_nodes
        if nodes is not None and nodes > 1:
            raise ConfigError("an orchestrator starts processes on its own node only", found=nodes,
                              where=f"serving.{role}_parameters.num_nodes",
                              fix="set serving.mode to leader")  # fmt: skip
    if fast:
        return "orchestrator", "fast logits: the draft's ranks send their logits to the target's ranks by MPI"
    if worlds["draft"] != worlds["target"]:
        return "orchestrator", f"{sizes}: in leader mode both would need equally many"
    return "orchestrator", "two TensorRT-LLM models in one server: TensorRT-LLM's own way for draft and target"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _gpus(config: RunConfig, role: Role, worlds: Mapping[Role, int], separate: bool) -> Ids:
    where, given = f"serving.{role}_parameters.gpu_device_ids", config.serving.parameters(role).gpu_device_ids
    first = worlds["target"] if separate and role == "draft" else 0
    ids = given if given is not None else tuple(range(first, first + worlds[role]))
    if len(ids) != worlds[role]:
        raise ConfigError("one GPU for each rank", where=where, found=f"{len(ids)} ids",
                          expected=f"{worlds[role]} (tensor × pipeline)")  # fmt: skip
    hardware = config.hardware
    if hardware.spec.is_gpu and max(ids) >= hardware.count:
        raise ConfigError(
            f"the {role} would need GPU {max(ids)}", where=where if given else "hardware.count",
            found=f"{hardware.count} GPUs (0 - {hardware.count - 1})",
            fix="set hardware.placement to shared, a smaller parallelism, or hardware.count",
        )  # fmt: skip
    return ids


def _participants(config: RunConfig, worlds: Mapping[Role, int]) -> dict[Role, Ids]:
    given = {role: config.serving.parameters(role).participant_ids for role in ROLES}
    if not config.speculation.fast_logits:
        for role in ROLES:
            if given[role] is not None:
                raise ConfigError(
                    "ranks are numbered only where they are started with the server",
                    where=f"serving.{role}_parameters.participant_ids", fix="leave it out, or set fast_logits",
                )  # fmt: skip
        return {}
    total = worlds["draft"] + worlds["target"]
    found: dict[Role, Ids] = {
        "draft": given["draft"] or tuple(range(1, 1 + worlds["draft"])),
        "target": given["target"] or tuple(range(1 + worlds["draft"], 1 + total)),
    }
    for role in ROLES:
        if len(found[role]) != worlds[role]:
            raise ConfigError("one MPI rank for each rank of the model", found=len(found[role]),
                              where=f"serving.{role}_parameters.participant_ids",
                              expected=str(worlds[role]))  # fmt: skip
    if sorted((*found["draft"], *found["target"])) != list(range(1, 1 + total)):
        raise ConfigError(
            "draft and target must share out the MPI ranks after the server's, rank 0",
            where="serving.target_parameters.participant_ids",
            found=f"draft {found['draft']}, target {found['target']}", expected=f"1 - {total}, each once",
        )  # fmt: skip
    return found
