"""How a server with TensorRT engines is started: the argument list, the script, and the page that explains it.

The shape is that of TensorRT-LLM's triton_backend/scripts/launch_triton_server.py: `mpirun` always; a process per rank
where the ranks are started with the server; other ranks than the first load the LLM models only.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtspec.errors import ConfigError
from trtspec.triton.devices import Devices

SERVER = "/opt/tritonserver/bin/tritonserver"
MPI = ("mpirun", "--allow-run-as-root")
LLM_MODELS = ("tensorrt_llm", "tensorrt_llm_draft")
SCRIPT, RECORD, README = "launch.sh", "launch.json", "README.md"
REPOSITORY = "$here"
"""Stands for the repository's folder in the script."""


@dataclass(frozen=True)
class Ports:
    """Where the server listens."""

    host: str
    http: int
    grpc: int
    metrics: int


def environment(devices: Devices) -> dict[str, str]:
    """Variables that tell TensorRT-LLM's backend that it is an orchestrator."""
    if devices.mode == "leader":
        return {}
    return {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1" if devices.spawns else "0"}


def command(devices: Devices, server: Callable[[int], Sequence[str]]) -> tuple[str, ...]:
    """The whole argument list; `server(rank)` is tritonserver's own, its program first."""
    words: list[str] = list(MPI)
    for rank in range(devices.world_size):
        words += [*([":"] if rank else []), "-n", "1", *server(rank), *_options(devices, rank)]
    return tuple(words)


def _options(devices: Devices, rank: int) -> list[str]:
    if rank:
        return ["--model-control-mode=explicit", *(f"--load-model={name}" for name in LLM_MODELS)]
    if not devices.spawns:
        return []
    # The server's own pools would take memory that the rank processes need.
    pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(devices.needed)]
    return ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false", *pools]


def planned_command(devices: Devices, repository: str, ports: Ports, program: str = SERVER) -> tuple[str, ...]:
    """The argument list for a repository folder."""

    def server(rank: int) -> list[str]:
        return [
            program,
            f"--model-repository={repository}",
            "--disable-auto-complete-config",
            f"--backend-config=python,shm-region-prefix-name=prefix{rank}_",
            f"--http-address={ports.host}",
            f"--http-port={ports.http}",
            f"--grpc-address={ports.host}",
            f"--grpc-port={ports.grpc}",
            f"--metrics-address={ports.host}",
            f"--metrics-port={ports.metrics}",
        ]

    return command(devices, server)


def script(devices: Devices, ports: Ports) -> str:
    """launch.sh: the same line from wherever the repository lies; further arguments go to the first server's end."""
    lines = ["#!/bin/sh", "# Written by trtspec.", "set -eu", 'here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)']
    lines += [f"export {name}={value}" for name, value in environment(devices).items()]
    return "\n".join([*lines, f"exec {shell(planned_command(devices, REPOSITORY, ports))}"]) + "\n"


def shell(words: Sequence[str]) -> str:
    """One command over several lines, an option each; `$here` stays a variable."""
    text = ""
    for word in words:
        quoted = f'"{word}"' if REPOSITORY in word else shlex.quote(word)
        text += (" \\\n    " if word.startswith("--") or word == ":" else " ") + quoted
    return text.strip()


def recorded(repository: Path) -> Devices:
    """What launch.json of a repository says. ConfigError where there is none that can be used."""
    try:
        said = json.loads((repository / RECORD).read_text(encoding="utf-8"))
        return Devices(
            said["mode"], said["spawns_processes"], said["world_size"],
            {role: tuple(ids) for role, ids in said["gpu_device_ids"].items()}, said["why"],
            {role: tuple(ids) for role, ids in said["participant_ids"].items()},
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            "it does not say how to start it", where=repository / RECORD, fix="run `trtspec repo`"
        ) from None


def record(
    devices: Devices, version: str, repository: str, ports: Ports, memory: Mapping[str, object]
) -> dict[str, object]:
    """launch.json: what the README says, for programs."""
    return {
        "tensorrt_llm": version,
        "mode": devices.mode,
        "spawns_processes": devices.spawns,
        "why": devices.why,
        "world_size": devices.world_size,
        "gpu_device_ids": {role: list(ids) for role, ids in devices.gpus.items()},
        "participant_ids": {role: list(ids) for role, ids in devices.participants.items()},
        "memory": dict(memory),
        "environment": environment(devices),
        "command": list(planned_command(devices, repository, ports)),
    }
