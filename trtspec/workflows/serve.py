"""serve: a Triton server on the repository that `build` wrote for this very configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.config import RunConfig
from trtspec.errors import ConfigError, MissingError, context
from trtspec.store import read_manifest, staleness
from trtspec.workflows.build import Build

if TYPE_CHECKING:
    from trtspec.triton.server import TritonServer


@contextmanager
def serving(config: RunConfig, note: Callable[[str], None]) -> Iterator[TritonServer]:
    """A running, ready server on the repository of `config`."""
    with serving_on(config, current_repository(config, note), note) as server:
        yield server


@contextmanager
def serving_on(config: RunConfig, repository: Path, note: Callable[[str], None]) -> Iterator[TritonServer]:
    """A running, ready server; stopped with everything it started when the block ends, however it ends."""
    from trtspec.triton.server import TritonServer

    log = config.report_dir / "server.log"
    with context(stage="serve"):
        note(f"Starting Triton on {repository} (log: {log})")
        with TritonServer.start(repository, config.serving, log) as server:
            yield server


def current_repository(config: RunConfig, note: Callable[[str], None]) -> Path:
    """The repository of `config`; ConfigError when it was not built, or from something else than is there now."""
    folder = config.repository_dir
    if read_manifest(folder) is None:
        raise ConfigError("no repository was built here", where=folder, fix="run `trtspec build` first")
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
