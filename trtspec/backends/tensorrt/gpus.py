"""Which GPUs each build gets: both roles side by side where there are enough for both, else one after the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from trtspec.config import Role, RunConfig

VISIBLE = "CUDA_VISIBLE_DEVICES"
_TURN = threading.Lock()
"""Held by a build that shares its GPUs with the other role's."""


def visible(count: int, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Ids of the GPUs that builds may use: those that the surrounding process was given, else all."""
    given = (os.environ if environ is None else environ).get(VISIBLE)
    if given is None:
        return tuple(map(str, range(count)))
    return tuple(word.strip() for word in given.split(",") if word.strip())


def side_by_side(config: RunConfig, gpus: int) -> bool:
    """Whether there is a GPU for every rank of both engines."""
    return config.pair.target.parallelism.world_size + config.pair.draft.parallelism.world_size <= gpus


def share(config: RunConfig, role: Role, ids: tuple[str, ...]) -> tuple[str, ...]:
    """The GPUs of one role's build: the target's first, the draft's after them; all start at the first in turns."""
    world, target = config.pair[role].parallelism.world_size, config.pair.target.parallelism.world_size
    first = target if role == "draft" and side_by_side(config, len(ids)) else 0
    return ids[first : first + world]


@contextmanager
def turn(config: RunConfig, gpus: int, note: Callable[[str], None]) -> Iterator[None]:
    """Wait, saying so, until the GPUs are free of the other role's build, if they are shared."""
    if side_by_side(config, gpus):
        yield
        return
    if not _TURN.acquire(blocking=False):
        note(f"waits for the other build: {gpus} GPUs are too few for both side by side")
        _TURN.acquire()
    try:
        yield
    finally:
        _TURN.release()
