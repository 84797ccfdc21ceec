"""Does a built engine fit this machine? Engines run on one compute capability and one TensorRT only, and the runtime
says so late and badly ("Failed to deserialize cuda engine"); the manifest says it first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtspec.config import ROLES, RunConfig
from trtspec.environment import Environment
from trtspec.errors import MissingError
from trtspec.store import read_manifest
from trtspec.versions import parse, same_release

SETTINGS = "engine settings"
"""Input of the engine stage that holds the builder's key facts."""


def built_for(folder: Path) -> Mapping[str, Any]:
    """`tensorrt_llm`, `tensorrt` and `sm` that an engine folder was built for; empty where it does not say."""
    manifest = read_manifest(folder) or {}
    settings = manifest.get("inputs", {}).get(SETTINGS, {})
    return settings.get("machine", {}) if isinstance(settings, dict) else {}


def misfit(facts: Mapping[str, Any], environment: Environment) -> str | None:
    """Why an engine with these facts cannot run here; None where nothing speaks against it."""
    sms = sorted({gpu.sm for gpu in environment.gpus if gpu.sm is not None})
    if facts.get("sm") is not None and sms and facts["sm"] not in sms:
        return f"it was built for SM {facts['sm']}, the GPUs here are SM {', '.join(map(str, sms))}"
    here, wanted = environment.tensorrt, facts.get("tensorrt")
    if here and wanted and not same_tensorrt(str(wanted), here):
        return f"it was built with TensorRT {wanted}, here is {here}"
    installed, llm = environment.tensorrt_llm, facts.get("tensorrt_llm")
    if installed and llm and not same_release(parse(str(llm)), parse(installed.version)):
        return f"it was built with TensorRT-LLM {llm}, here is {installed.version}"
    return None


def same_tensorrt(one: str, other: str) -> bool:
    """Equal as far as both say: 10.14 and 10.14.1.48 agree, 10.14.1 and 10.14.0 do not."""
    pairs = zip(one.split("+")[0].split("."), other.split("+")[0].split("."), strict=False)
    return all(left == right for left, right in pairs)


def require_fit(config: RunConfig, environment: Environment) -> None:
    """MissingError for an engine that was built for another machine, and where there is no GPU at all."""
    if not environment.gpus:
        raise MissingError(
            "TensorRT engines need an NVIDIA GPU",
            found="none (nvidia-smi)",
            fix="serve on the GPU host; `engine.backend: reference` runs the same pipeline here",
        )
    for role in ROLES:
        folder = config.engine_dir(role)
        problem = misfit(built_for(folder), environment)
        if problem:
            raise MissingError(
                f"the {role}'s engine does not fit this machine: {problem}",
                where=folder,
                fix="run `trtspec build` here, which rebuilds it, or serve where it was built (one container image)",
            )
