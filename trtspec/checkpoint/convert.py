"""Hugging Face folder → TensorRT-LLM checkpoint (config.json and a safetensors file for each rank), streamed.

Everything is planned and checked from headers before the first byte is written; memory does not grow with the model.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.facts import CONFIG
from trtspec.checkpoint.plan import Plan, plan_conversion
from trtspec.checkpoint.scan import nonfinite
from trtspec.checkpoint.writer import Progress, write_files
from trtspec.errors import BuildError, ModelFileError

WEIGHTS = "rank0.safetensors"
FORMAT = 2
"""Raised when the same source would be written differently: part of the content key of a checkpoint."""
NAMED = 5
"""Tensors that a warning names."""
NONFINITE = "NaN or infinite weights"
FINITE_FIX = "use weights that are finite; without --strict this is a warning"


@dataclass(frozen=True)
class ConvertResult:
    """What was written: bytes of the weight files, number of tensors in them, content of config.json, and what the
    user must know (tensors left out, NaN or infinite weights)."""

    bytes_written: int
    tensors: int
    config: dict[str, Any]
    warnings: tuple[str, ...] = ()


def convert(
    model_dir: Path,
    out_dir: Path,
    *,
    dtype: str = "auto",
    tensor: int = 1,
    pipeline: int = 1,
    tensorrt_llm_version: str | None = None,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> ConvertResult:
    """Write the checkpoint into the empty folder `out_dir`; `progress(done, total)` in bytes.

    ModelFileError: broken or unsupported model; with `strict`, also NaN or infinite weights. ConfigError: it cannot be
    cut so. BuildError: writing failed. Nothing stays in `out_dir` then.
    """
    plan = plan_conversion(
        model_dir, dtype=dtype, tensor=tensor, pipeline=pipeline, tensorrt_llm_version=tensorrt_llm_version
    )
    check_room(out_dir, plan.nbytes)
    warnings = (*plan.warnings, *check_finite(plan, strict=strict, workers=workers))
    return write_checkpoint(plan, out_dir, warnings=warnings, workers=workers, progress=progress)


def check_finite(plan: Plan, *, strict: bool = False, workers: int | None = None) -> tuple[str, ...]:
    """A warning that names the tensors with NaN or infinite weights; none when all are finite.

    ModelFileError instead with `strict`. Reads every source byte once.
    """
    found = nonfinite(plan.sources.values(), workers)
    if not found:
        return ()
    named = ", ".join(f"{name} ({count})" for name, count in list(found.items())[:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    if strict:
        raise ModelFileError(
            "weights hold NaN or infinity",
            where=plan.facts.path.parent,
            found=named + more,
            fix=FINITE_FIX,
        )
    return (f"{NONFINITE} (how many): {named}{more}",)


def write_checkpoint(
    plan: Plan,
    out_dir: Path,
    *,
    warnings: tuple[str, ...] = (),
    workers: int | None = None,
    progress: Progress | None = None,
    durable: bool = True,
) -> ConvertResult:
    """Carry out a plan. On any failure nothing of it stays in `out_dir`. `durable` flushes files to the disk."""
    files = {out_dir / rank.file: rank.tensors for rank in plan.ranks}
    config = {**plan.config, "producer": {"name": "trtspec", "format": FORMAT, "warnings": list(warnings)}}
    size = write_files(files, workers=workers, progress=progress, durable=durable)
    try:
        _write_config(out_dir / CONFIG, config)
    except BaseException:
        for path in (*files, out_dir / CONFIG):
            path.unlink(missing_ok=True)
        raise
    _fsync_folder(out_dir)
    return ConvertResult(size, len(plan.tensors), config, warnings)


def stored_warnings(checkpoint: Path) -> tuple[str, ...]:
    """The warnings of the conversion that made a checkpoint, for results that are reused."""
    try:
        config = json.loads((checkpoint / CONFIG).read_text(encoding="utf-8"))
        return tuple(str(line) for line in config["producer"]["warnings"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def refuse_nonfinite(checkpoint: Path) -> None:
    """ModelFileError when a checkpoint that stands already was made of NaN or infinite weights."""
    found = next((line for line in stored_warnings(checkpoint) if line.startswith(NONFINITE)), None)
    if found is not None:
        raise ModelFileError("the checkpoint was made of weights that are not finite", where=checkpoint, found=found,
                             fix=FINITE_FIX)  # fmt: skip


def check_room(out_dir: Path, nbytes: int) -> None:
    """BuildError when `out_dir` is not an empty folder on a disk with room for `nbytes`."""
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
