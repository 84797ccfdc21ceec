"""The machine that engines are built for: TensorRT-LLM, TensorRT, GPU. Detected here, or planned for elsewhere."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from trtspec.backends.tensorrt.commands import tool_of
from trtspec.backends.tensorrt.gpus import VISIBLE, visible
from trtspec.config import RunConfig
from trtspec.environment import Environment, Host, detect
from trtspec.environment.paths import wrong_tensorrt
from trtspec.errors import MissingError
from trtspec.versions import USE_CONTAINER, TrtLlm, choose


@dataclass(frozen=True)
class Machine:
    """What an engine depends on besides its checkpoint and flags."""

    version: TrtLlm
    tensorrt: str | None
    """TensorRT's version: the installed one, else that of the containers of `version`."""
    sm: int | None
    """Compute capability × 10, of the GPUs found, else of `hardware.gpu`."""
    gpus: int
    """GPUs that builds may use; 0 where none are known."""
    seen: bool
    """A TensorRT-LLM installation was found here; else everything is a plan."""

    def facts(self) -> dict[str, object]:
        """For content keys and manifests."""
        return {"tensorrt_llm": str(self.version), "tensorrt": self.tensorrt, "sm": self.sm}


def machine_for(config: RunConfig, environment: Environment | None = None) -> Machine:
    """This machine, as far as it counts: with a cluster's launcher only what is configured does.

    ConfigError or MissingError for a version without engines, or one that clashes with the configured one.
    """
    here = config.engine.launcher == "local"
    found = (environment or detected(config)) if here else None
    installed = found.tensorrt_llm.version if found and found.tensorrt_llm else None
    version = choose(config.engine.tensorrt_llm_version, installed, "tensorrt").version
    sms, count = usable(found) if found else (set(), 0)
    there = found is not None and bool(found.gpus)
    spec = config.hardware.spec
    return Machine(
        version=version,
        tensorrt=(found.tensorrt if found and installed else None) or _tensorrt_of(version),
        sm=(sms.pop() if len(sms) == 1 else None) if there else spec.sm,
        gpus=count if there else config.hardware.count if spec.is_gpu else 0,
        seen=installed is not None,
    )


def usable(environment: Environment) -> tuple[set[int | None], int]:
    """(compute capabilities, number) of the GPUs that CUDA_VISIBLE_DEVICES leaves."""
    ids = visible(len(environment.gpus))
    chosen = [gpu for gpu in environment.gpus if str(gpu.index) in ids]
    # Ids that are no numbers (UUIDs) cannot be told apart here.
    return {gpu.sm for gpu in chosen or environment.gpus}, len(ids)


def _tensorrt_of(version: TrtLlm) -> str | None:
    return version.containers[-1].tensorrt if version.containers else version.tensorrt


def detected(config: RunConfig) -> Environment:
    """What is on this machine; looked at once for each installation asked about."""
    return _detected(tool_of(config))


@functools.cache
def _detected(tool: Path | None) -> Environment:
    if tool is None:
        return detect()
    # The configured installation stands for any other: its folder is searched first, our own packages do not count.
    path = os.pathsep.join((str(tool.parent), os.environ.get("PATH", "")))
    return detect(host=Host(environ={**os.environ, "PATH": path}, package=_none))


def _none(_: str) -> str | None:
    return None


def require_machine(config: RunConfig, environment: Environment | None = None) -> Machine:
    """The machine, with a TensorRT-LLM and GPUs of one kind; MissingError says what is missing."""
    machine = machine_for(config, environment)
    if config.engine.launcher != "local":
        return machine
    found = environment or detected(config)
    missing = [] if machine.seen else ["no tensorrt_llm package"]
    missing += [] if found.tools.get("trtllm-build") else [f"no {tool_of(config) or 'trtllm-build on PATH'}"]
    missing += [] if found.gpus else ["no NVIDIA GPU (nvidia-smi)"]
    missing += [f"no GPU left by {VISIBLE}"] if found.gpus and not machine.gpus else []
    wrong = wrong_tensorrt(found, machine.version) if machine.seen else None
    missing += [wrong] if wrong else []
    if missing:
        raise MissingError(
            "engines for `engine.backend: tensorrt` cannot be built on this machine",
            found=", ".join(missing),
            expected=f"TensorRT-LLM {machine.version} and a GPU",
            fix=f"{USE_CONTAINER}; `engine.launcher: slurm` or `kubernetes` builds elsewhere, and "
            "`engine.backend: reference` runs the same pipeline here. `trtspec doctor` shows what there is",
        )
    if machine.sm is None:
        kinds = ", ".join(dict.fromkeys(f"{gpu.name} (SM {gpu.sm})" for gpu in found.gpus))
        raise MissingError(
            "this machine's GPUs are of different kinds, or their driver does not say which",
            found=kinds,
            expected="one compute capability, since an engine runs on no other",
            fix="choose those of one kind with CUDA_VISIBLE_DEVICES",
        )
    return machine
