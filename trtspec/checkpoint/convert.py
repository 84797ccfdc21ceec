"""Hugging Face folder → TensorRT-LLM checkpoint (config.json and rank0.safetensors), streamed.

Everything is planned and checked from headers before the first byte is written; memory does not grow with the model.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.facts import CONFIG
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.writer import write
from trtspec.errors import BuildError

WEIGHTS = "rank0.safetensors"
FORMAT = 1
"""Raised when the same source would be written differently: part of the content key of a checkpoint."""


@dataclass(frozen=True)
class ConvertResult:
    """What was written: bytes of the weight file, number of tensors, content of config.json."""

    bytes_written: int
    tensors: int
    config: dict[str, Any]


def convert(
    model_dir: Path,
    out_dir: Path,
    *,
    dtype: str = "auto",
    tensor: int = 1,
    pipeline: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> ConvertResult:
    """Write the checkpoint into the empty folder `out_dir`; `progress(done, total)` in bytes.

    ModelFileError: broken or unsupported model. ConfigError: a setting not supported. BuildError: writing failed.
    """
    plan = plan_conversion(model_dir, dtype=dtype, tensor=tensor, pipeline=pipeline)
    _check_room(out_dir, plan.nbytes)
    size = write(out_dir / WEIGHTS, plan.tensors, progress)
    _write_config(out_dir / CONFIG, plan.config)
    _fsync_folder(out_dir)
    return ConvertResult(size, len(plan.tensors), plan.config)


def _check_room(out_dir: Path, nbytes: int) -> None:
    if not out_dir.is_dir() or any(out_dir.iterdir()):
        raise BuildError("the output folder must exist and be empty", where=out_dir)
    free = shutil.disk_usage(out_dir).free
    if free < nbytes + (1 << 20):
        raise BuildError(
            "the disk has no room for the checkpoint",
            where=out_dir,
            found=f"{free} bytes free",
            expected=f"{nbytes + (1 << 20)}",
            fix="free space or set output.engines to another disk",
        )


def _write_config(path: Path, config: Mapping[str, Any]) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise BuildError(f"writing failed: {error.strerror}", where=path) from None


def _fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
