"""Run the calibration worker in the environment that has nvidia-modelopt, and check what that environment is first."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.quantize import worker
from trtspec.checkpoint.quantize.calibration import TENSORS, Calibration, write_about
from trtspec.errors import BuildError, MissingError, ModelFileError
from trtspec.runner import Runner, SubprocessRunner, describe, failure

OLDEST, TOO_NEW = (0, 45), (0, 48)
"""modelopt versions this was written against: 0.45 is the first that exports NVFP4 without a GPU."""
TRANSFORMERS = {(0, 45): ((4, 56), (5, 10)), (0, 46): ((4, 57), (5, 15)), (0, 47): ((4, 57), (5, 15))}
"""Its range of transformers, first and past the last; declared only in its [hf] extra, so pip does not see to it."""
POLL = 0.5
INSTALL = 'install `trtspec[quantize]`, or a virtual environment with "nvidia-modelopt>=0.45,<0.48" "transformers>=4.57,<5" accelerate requests, and name its Python as tools.modelopt_python'  # noqa: E501
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Job:
    """What to calibrate. `prompts` are token ids; names are those of the configuration."""

    model: Path
    weights: str
    kv_cache: str
    prompts: tuple[tuple[int, ...], ...]
    group_size: int = 128
    seed: int = 0
    dtype: str = "auto"
    hf_out: Path | None = None
    """Write modelopt's Hugging Face checkpoint here as well."""

    def document(self, out: Path) -> dict[str, Any]:
        """The worker's argument."""
        return {
            "model": str(self.model),
            "format": self.weights,
            "kv_cache": self.kv_cache,
            "group_size": self.group_size,
            "prompts": [list(ids) for ids in self.prompts],
            "seed": self.seed,
            "dtype": self.dtype,
            "device": "auto",
            "out": str(out),
            "hf_out": None if self.hf_out is None else str(self.hf_out),
        }


def versions(python: Path | None = None) -> dict[str, str | None]:
    """Packages of the environment of `python` (None: this one). MissingError when it cannot be asked."""
    return worker.versions() if python is None else dict(_asked(python))


@cache
def _asked(python: Path) -> dict[str, str | None]:
    command = [str(python), worker.__file__, "--versions"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        found: dict[str, str | None] = json.loads(done.stdout)
        if not isinstance(found, dict):
            raise ValueError(f"it said {done.stdout[:80]!r}")
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise MissingError(
            "tools.modelopt_python cannot be asked for its packages", where=python, found=error, fix=INSTALL
        ) from None
    return found


def require(facts: ModelFacts, python: Path | None = None) -> dict[str, str | None]:
    """The versions, when they can calibrate this model; MissingError with the way out, before hours are spent."""
    found = versions(python)
    where = python or sys.executable
    absent = [name for name in worker.PACKAGES if found.get(name) is None]
    if absent:
        # modelopt 0.47 imports requests without declaring it.
        raise MissingError(f"no {', no '.join(absent)} in the environment that calibrates", where=where, fix=INSTALL)
    modelopt, transformers = (_version(found[name]) for name in ("nvidia-modelopt", "transformers"))
    if not OLDEST <= modelopt < TOO_NEW:
        raise MissingError(
            "this nvidia-modelopt is not one that trtspec knows",
            where=where,
            found=found["nvidia-modelopt"],
            expected="0.45 - 0.47",
            fix="TensorRT-LLM 1.2.1 pins 0.37: keep it in an environment of its own; " + INSTALL,
        )
    first, past = TRANSFORMERS[modelopt]
    if not first <= transformers < past:
        raise MissingError(
            f"nvidia-modelopt {found['nvidia-modelopt']} does not go with this transformers",
            where=where,
            found=found["transformers"],
            expected=f"at least {first[0]}.{first[1]}, below {past[0]}.{past[1]}",
            fix=INSTALL,
        )
    if facts.moe is not None and transformers >= (5, 0):
        raise MissingError(
            "transformers 5 keeps a mixture's experts in one tensor, which modelopt cannot calibrate by linears",
            where=where,
            found=f"transformers {found['transformers']}",
            expected="4.57",
            fix=INSTALL,
        )
    return found


def _version(text: str | None) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else (0, 0)


def calibrate(
    job: Job,
    out: Path,
    log: Path,
    *,
    python: Path | None = None,
    about: Mapping[str, Any] | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> None:
    """Write a calibration into the empty folder `out`. BuildError with the log when the worker fails.

    The argument file stands in `out` while it runs and is removed: prompts are the user's. `progress` counts prompts
    (twice for formats that search).
    """
    document = out / "job.json"
    document.write_text(json.dumps(job.document(out)), encoding="utf-8")
    try:
        _run([str(python or sys.executable), worker.__file__, str(document)], log, runner, progress, note)
    finally:
        document.unlink(missing_ok=True)
    if not (out / TENSORS).is_file():
        raise BuildError("the calibration ended without a result", where=out, fix=f"read {log}")
    write_about(out, **dict(about or {}))
    _check(out)


def _check(out: Path) -> None:
    """BuildError for a result that cannot be read: once published it would be used again and again."""
    try:
        Calibration.open(out)
    except ModelFileError as error:
        raise BuildError(f"the calibration's result cannot be read: {error.what}", where=out / TENSORS) from None


def _run(
    command: Sequence[str],
    log: Path,
    runner: Runner | None,
    progress: Progress | None,
    note: Callable[[str], None] | None,
) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = log.stat().st_size if log.exists() else 0
    process = (runner or SubprocessRunner()).start(command, log=log)
    lines = _Lines(log, begin)
    try:
        while True:
            code = process.poll()
            for line in lines.new():
                _tell(line, progress, note)
            if code is not None:
                break
            time.sleep(POLL)
    except BaseException:
        process.stop()
        raise
    if code != 0:
        failed = failure(BuildError, f"calibration failed: its process {describe(code)}", log)
        failed.found = lines.error or failed.found
        raise failed


class _Lines:
    """Lines that a growing log has got since last asked."""

    def __init__(self, path: Path, begin: int) -> None:
        self._path, self._at, self._rest = path, begin, b""
        self.error = ""

    def new(self) -> Iterator[str]:
        """Whole lines only."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        self._at += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("error "):
                self.error = text.removeprefix("error ")
            yield text


def _tell(line: str, progress: Progress | None, note: Callable[[str], None] | None) -> None:
    match = re.fullmatch(r"progress (\d+) (\d+)", line)
    if match and progress is not None:
        progress(int(match[1]), int(match[2]))
    elif line.startswith("note ") and note is not None:
        note(line.removeprefix("note "))
