"""serve: a Triton server on the repository that `build` wrote for this very configuration."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtspec.config import RunConfig
from trtspec.errors import ConfigError, MissingError, ServingError, context
from trtspec.store import read_manifest, staleness
from trtspec.versions import USE_CONTAINER
from trtspec.workflows.build import Build

if TYPE_CHECKING:
    from trtspec.triton.server import TritonServer

OTHER_POLICY = "TRTSPEC_POLICY"
"""Read by the pipeline's model."""


@contextmanager
def serving(config: RunConfig, note: Callable[[str], None]) -> Iterator[TritonServer]:
    """A running, ready server on the repository of `config`."""
    with serving_on(config, current_repository(config, note), note) as server:
        yield server


@contextmanager
def measured_serving(config: RunConfig, repository: Path, note: Callable[[str], None]) -> Iterator[TritonServer]:
    """The same without the policy in force: it would limit what is measured to decide it."""
    policy = {"version": 1, "default": {"draft_len": config.speculation.max_draft_len}, "tasks": {}}
    with tempfile.TemporaryDirectory(prefix="trtspec-") as folder:
        free = Path(folder) / "policy.json"
        free.write_text(json.dumps(policy), encoding="utf-8")
        with serving_on(config, repository, note, {OTHER_POLICY: str(free)}) as server:
            yield server


@contextmanager
def serving_on(
    config: RunConfig, repository: Path, note: Callable[[str], None], environment: Mapping[str, str] | None = None
) -> Iterator[TritonServer]:
    """A running, ready server; stopped with everything it started when the block ends, however it ends."""
    from trtspec.triton.server import TritonServer

    log = config.report_dir / "server.log"
    with context(stage="serve"):
        if config.engine.backend == "pytorch":
            from trtspec.backends.pytorch import require_runtime

            require_runtime(config)
        if config.engine.backend == "reference":
            from trtspec.backends.base import builder_for

            builder_for(config).require(config)  # the server would say it too: late, and in many lines
        how = _through_mpi(config, repository) if config.engine.backend == "tensorrt" else {}
        how["environment"] = {**how.get("environment", {}), **(environment or {})}
        note(f"Starting Triton on {repository} (log: {log})")
        with TritonServer.start(repository, config.serving, log, note=note, **how) as server:
            if server.without_draft:
                note(f"Without speculation: {server.without_draft}")
            try:
                yield server
            except ServingError:
                server.check(draft=False)  # a request that failed because the server has died: then that is said
                raise


def _through_mpi(config: RunConfig, repository: Path) -> dict[str, Any]:
    """How a server with TensorRT engines differs; MissingError without mpirun or TensorRT-LLM's backend."""
    from trtspec.triton import launch
    from trtspec.triton.installation import find_installation

    binary = find_installation(config.serving.tritonserver).binary
    missing = [] if shutil.which(launch.MPI[0]) else [f"no {launch.MPI[0]} on PATH"]
    if not (binary.resolve().parent.parent / "backends" / "tensorrtllm").is_dir():
        missing.append(f"no tensorrtllm backend beside {binary}")
    if missing:
        raise MissingError(
            "this machine cannot serve TensorRT engines", found=", ".join(missing), fix=f"{USE_CONTAINER}; "
            f"there, {repository / launch.SCRIPT} starts it too",
        )  # fmt: skip
    devices = launch.recorded(repository)
    return {
        "environment": launch.environment(devices),
        "through": lambda words: launch.command(devices, lambda _: words),
    }


def current_repository(config: RunConfig, note: Callable[[str], None]) -> Path:
    """The repository of `config`; ConfigError when it was not built, or from something else than is there now."""
    folder = config.repository_dir
    if read_manifest(folder) is None:
        raise ConfigError("no repository was built here", where=folder, fix="run `trtspec build` first")
    if config.engine.backend == "tensorrt":
        _require_fit(config)
    try:
        build = Build.of(config)
    except (ConfigError, MissingError) as error:
        # A serving machine need not hold the source weights; then the manifest is all there is to go by.
        note(f"Not measured: whether the repository is current ({error.what})")
        return folder
    stale = staleness(build.stages.repository(), build.stages.memo)
    build.stages.memo.save()
    if stale:
        raise ConfigError(f"the repository is out of date: {stale}", where=folder, fix="run `trtspec build`")
    return folder


def _require_fit(config: RunConfig) -> None:
    """Engines of another GPU generation or TensorRT never load; said before anything is started."""
    from trtspec.backends.tensorrt.fits import require_fit
    from trtspec.backends.tensorrt.machine import detected

    with context(stage="serve"):
        require_fit(config, detected(config))
