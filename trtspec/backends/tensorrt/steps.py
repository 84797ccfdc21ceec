"""The steps of one engine build: the build alone on this machine; on a cluster first a probe of the node."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from trtspec.backends.launchers import Step, probe
from trtspec.backends.launchers.manifest import job
from trtspec.backends.tensorrt.gpus import VISIBLE, share, visible
from trtspec.backends.tensorrt.machine import Machine
from trtspec.config import Role, RunConfig
from trtspec.errors import MissingError
from trtspec.store import write_atomic

PROBE_TIMEOUT = 900.0
TOOLS = {"slurm": "sbatch", "kubernetes": "kubectl"}


def plan(
    config: RunConfig, role: Role, machine: Machine, command: tuple[str, ...], folders: tuple[Path, ...]
) -> list[Step]:
    """Steps in order. `folders`: what the build reads and writes."""
    log = log_of(config, role)
    seen = tuple(dict.fromkeys((*folders, log.parent, config.output.engines)))
    world = config.pair[role].parallelism.world_size
    local = config.engine.launcher == "local"
    gpus = min(world, machine.gpus) if machine.gpus else world
    build = Step(
        name=f"engine of the {role}",
        slug=f"{config.name}-{role}-build",
        command=command,
        log=log,
        gpus=gpus,
        timeout=config.engine.timeout,
        variables=_variables(config, role, machine) if local else {},
        folders=seen,
    )
    return [build] if local else [_probe(config, role, machine, command, build), build]


def log_of(config: RunConfig, role: Role) -> Path:
    """engines/<name>/<role>/engine.log, beside the engine's folder: it outlives a failed build."""
    return config.engine_dir(role).with_name("engine.log")


def _variables(config: RunConfig, role: Role, machine: Machine) -> dict[str, str]:
    ids = share(config, role, visible(machine.gpus))
    return {VISIBLE: ",".join(ids)} if ids else {}


def _probe(config: RunConfig, role: Role, machine: Machine, command: tuple[str, ...], build: Step) -> Step:
    """Minutes on one GPU that save an hour on eight: is the node what the engine is planned for?"""
    wanted = {"tensorrt-llm": str(machine.version), "tensorrt": machine.tensorrt, "sm": machine.sm, "tool": command[0]}
    words = [word for name, value in wanted.items() if value is not None for word in (f"--{name}", str(value))]
    return Step(
        name=f"probe for the engine of the {role}",
        slug=f"{config.name}-{role}-probe",
        command=("python3", str(probe_of(config, role)), *words),
        log=build.log,
        gpus=1,
        timeout=PROBE_TIMEOUT,
        folders=build.folders,
    )


def probe_of(config: RunConfig, role: Role) -> Path:
    """engines/<name>/<role>/engine.probe.py: where the node finds the probe."""
    return config.engine_dir(role).with_name("engine.probe.py")


def write_probe(config: RunConfig, role: Role) -> None:
    """Put the probe where the cluster sees it."""
    write_atomic(probe_of(config, role), Path(probe.__file__).read_text(encoding="utf-8"))


def require_launcher(config: RunConfig, steps: Sequence[Step]) -> None:
    """MissingError without the cluster's tool; ConfigError for what its job files cannot hold."""
    tool = TOOLS.get(config.engine.launcher)
    if tool is None:
        return
    if shutil.which(tool) is None:
        raise MissingError(f"engine.launcher {config.engine.launcher} needs {tool}", found="none on PATH",
                           fix="run this where the cluster's tools are, or set engine.launcher to local")  # fmt: skip
    for step in steps:
        if config.engine.launcher == "kubernetes":
            job(step, config.engine.kubernetes, "image", "name")
