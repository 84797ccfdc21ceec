"""The reference engine: batched steps over ragged sequences, plain decoding and single verify steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trtspec.backends.reference.config import EngineConfig, LinearKind
from trtspec.backends.reference.core import Core
from trtspec.backends.reference.plan import plan_step, run_step
from trtspec.backends.reference.request import Request, Update
from trtspec.backends.reference.sequence import Running
from trtspec.backends.reference.worker import Worker

__all__ = ["EngineConfig", "ReferenceEngine", "open_engine"]


class ReferenceEngine(Worker[Running]):
    """Open with :func:`open_engine`; use as a context manager or call :meth:`close`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        super().__init__(core.config, "reference-engine")

    def _make(self, request: Request, on_update: Callable[[Update], None]) -> Running:
        return Running(request, on_update, self.config.vocab_size)

    def _admit(self, running: Running) -> bool:
        lease = self._core.admit(running.ids, reuse=not running.request.return_context_logits)
        if lease is None:
            return False
        running.slot, running.cached = lease
        return True

    def _release(self, running: Running, intact: bool) -> None:
        if running.slot is not None:
            self._core.release(running.slot, running.ids[: running.cached] if intact else [])

    def _cores(self) -> tuple[Core, ...]:
        return (self._core,)

    def _advance(self, running: list[Running]) -> None:
        for run, _, update in run_step(self._core, plan_step(running)):
            self._report(run.running, update)


def open_engine(
    engine_dir: str | Path, *, threads: int | None = None, linear: LinearKind | None = None
) -> ReferenceEngine:
    """Load an engine folder (config.json, rank0.safetensors).

    `threads`: torch threads; unset = 1 for a small model, else torch's default. `linear`: how weights are multiplied;
    unset = the fastest kind this machine has; `engine.config.linear_kind` tells which.
    """
    return ReferenceEngine(Core(Path(engine_dir), threads, linear))
