"""The reference engine: batched steps over ragged sequences, plain decoding and single verify steps."""

from __future__ import annotations

from collections.abc import Callable

from trtspec.backends.reference.core import Core
from trtspec.backends.reference.plan import plan_step, run_step
from trtspec.backends.reference.request import Request, Update
from trtspec.backends.reference.sequence import Running
from trtspec.backends.reference.worker import Worker


class ReferenceEngine(Worker[Running]):
    """Open with :func:`trtspec.backends.reference.open_engine`; use as a context manager or call :meth:`close`."""

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
        for run, _, update in run_step(self._core, plan_step(running, self._core.boundary)):
            self._report(run.running, update)
