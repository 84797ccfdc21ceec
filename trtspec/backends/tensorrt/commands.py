"""The exact `trtllm-build` line of one engine, for one TensorRT-LLM version. Pure: nothing is read or started."""

from __future__ import annotations

from pathlib import Path

from trtspec.backends.tensorrt.flags import Flags, arguments, engine_flags
from trtspec.backends.tensorrt.subject import Subject, planned
from trtspec.config import Role, RunConfig
from trtspec.errors import ConfigError
from trtspec.versions import TrtLlm, check_flags

TOOL = "trtllm-build"
CACHE = "model.cache"
"""The timing cache that a build writes, `trtllm-build`'s own name for it; moved to :func:`timing_cache` afterwards."""


def build_command(
    config: RunConfig,
    role: Role,
    checkpoint: Path,
    out: Path,
    version: TrtLlm,
    *,
    subject: Subject | None = None,
    tensorrt: str | None = None,
) -> tuple[str, ...]:
    """Argument list. ConfigError for a flag that may not be set, or that `version` does not take.

    `subject` is the engine as its checkpoint has it, by default as configured; `tensorrt` the version whose timing
    cache is used, by default the one that belongs to `version`.
    """
    seen = subject or planned(config, role, version)
    cache = timing_cache(config, seen.sm, tensorrt or version.tensorrt)
    places: Flags = {"checkpoint_dir": str(checkpoint), "output_dir": str(out)}
    caches: Flags = {"input_timing_cache": str(cache), "output_timing_cache": str(out / CACHE)}
    words = arguments(places | engine_flags(config, seen) | caches)
    _check(config, version, words)
    return (str(tool_of(config) or TOOL), *words)


def _check(config: RunConfig, version: TrtLlm, words: list[str]) -> None:
    try:
        check_flags(version, words)
    except ConfigError as error:
        name = error.what.split()[0].removeprefix("--")
        if name in config.engine.tensorrt.flags:
            error.where = f"engine.tensorrt.flags.{name} ({error.where})"
        raise


def timing_cache(config: RunConfig, sm: int | None, tensorrt: str | None) -> Path:
    """engines/.timing-cache/sm90-tensorrt10.14.cache: times measured on another GPU or TensorRT are of no use."""
    gpu = "any" if sm is None else f"sm{sm}"
    return config.output.engines / ".timing-cache" / f"{gpu}-tensorrt{tensorrt or 'unknown'}.cache"


def tool_of(config: RunConfig) -> Path | None:
    """The configured `trtllm-build`, also the one beside a configured Python; None for the one on PATH."""
    tools = config.engine.tools
    if tools.trtllm_build is not None:
        return tools.trtllm_build
    return None if tools.python is None else tools.python.parent / "trtllm-build"
