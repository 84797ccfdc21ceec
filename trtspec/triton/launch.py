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
from trtspec.triton import access
from trtspec.triton.devices import Devices

SERVER = "/opt/tritonserver/bin/tritonserver"
MPI = ("mpirun", "--allow-run-as-root")
LLM_MODELS = ("tensorrt_llm", "tensorrt_llm_draft")
SCRIPT, RECORD, README = "launch.sh", "launch.json", "README.md"
REPOSITORY = "$here"
"""Stands for the repository's folder in the script."""
CLOSED = "$closed"
"""Stands for a value made when the script runs."""
_EVERY_SH_HAS_IT = "# shellcheck disable=SC3045"
_LIMITS = ("umask 077", _EVERY_SH_HAS_IT, "ulimit -c 0", _EVERY_SH_HAS_IT, "ulimit -s 65536 || true")


POOL = 32
"""Threads that the Python backend gives each model by default, for its calls of other models and its responses."""


def pool(concurrent: int) -> int:
    """Threads for a BLS that works on so many requests: each may have a call, and leave one behind that hangs."""
    return max(POOL, 2 * concurrent + 16)


@dataclass(frozen=True)
class Ports:
    """Where the server listens, and the threads of each of its Python models."""

    host: str
    http: int
    grpc: int
    metrics: int
    threads: int = POOL
    more: tuple[str, ...] = ()
    """Further arguments for tritonserver."""


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


def planned_command(devices: Devices, repository: str, ports: Ports, closed: str | None = None) -> tuple[str, ...]:
    """The argument list for a repository folder. `closed` is what nobody can guess (see :mod:`access`)."""
    more = ports.more if closed is None else access.options(ports.more, closed)

    def server(rank: int) -> list[str]:
        return [
            SERVER,
            f"--model-repository={repository}",
            "--disable-auto-complete-config",
            f"--backend-config=python,shm-region-prefix-name=prefix{rank}_",
            f"--backend-config=python,thread-pool-size={ports.threads}",
            f"--http-address={ports.host}",
            f"--http-port={ports.http}",
            f"--grpc-address={ports.host}",
            f"--grpc-port={ports.grpc}",
            f"--metrics-address={ports.host}",
            f"--metrics-port={ports.metrics}",
            *more,
        ]

    return command(devices, server)


_DRAIN = """\
# From SIGTERM on, tritonserver's models cannot call each other: the pipeline must be empty before (docs/serving.md).
TRTSPEC_DRAIN_DIR=${TRTSPEC_DRAIN_DIR:-$(mktemp -d)}
export TRTSPEC_DRAIN_DIR
# shellcheck disable=SC2329  # the trap below calls it
stop() {
    : >"$TRTSPEC_DRAIN_DIR/drain"
    left=${TRTSPEC_DRAIN_SECONDS:-20}
    for serving in "$TRTSPEC_DRAIN_DIR"/serving.*; do
        while [ "$left" -gt 0 ] && [ -e "$serving" ] && [ ! -e "$TRTSPEC_DRAIN_DIR/drained.${serving##*.}" ]; do
            sleep 1
            left=$((left - 1))
        done
    done
    kill -TERM "$server" 2>/dev/null || true
}
"""
_WAIT = """\
loaded() {
    for serving in "$TRTSPEC_DRAIN_DIR"/serving.*; do
        if [ -e "$serving" ]; then return 0; fi
    done
    return 1
}
attempt=1
start
trap stop TERM INT
while :; do
    status=0
    wait "$server" || status=$?
    # A signal ends the wait, not the server.
    if kill -0 "$server" 2>/dev/null; then continue; fi
    # SIGABRT while it loads its models: a known fault of Triton (docs/serving.md). Later requests would be lost.
    if [ "$status" -ne 134 ] || [ "$attempt" -ge 3 ] || [ -e "$TRTSPEC_DRAIN_DIR/drain" ] || loaded; then break; fi
    attempt=$((attempt + 1))
    echo "tritonserver was ended by SIGABRT before it was ready: starting it again ($attempt of 3)" >&2
    start
done
exit "$status"
"""


def script(devices: Devices, ports: Ports) -> str:
    """launch.sh: the same command from wherever the repository lies."""
    lines = ["#!/bin/sh", "# Written by trtspec.", "set -eu", 'here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)']
    lines += preamble(devices)
    command = shell(planned_command(devices, REPOSITORY, ports, CLOSED))
    return "\n".join([*lines, _DRAIN + f"start() {{\n{command} &\nserver=$!\n}}", _WAIT])


def preamble(devices: Devices) -> list[str]:
    """Lines before the command: files and shared memory for this user alone, no core dumps, larger stacks."""
    exports = [f"export {name}={value}" for name, value in environment(devices).items()]
    return [*exports, *_LIMITS, r"closed=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')"]


def shell(words: Sequence[str]) -> str:
    """One command over several lines, an option each; `$here` and `$closed` stay variables."""
    text = ""
    for word in words:
        quoted = f'"{word}"' if REPOSITORY in word or CLOSED in word else shlex.quote(word)
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
