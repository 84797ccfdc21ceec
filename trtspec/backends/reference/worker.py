"""The worker thread of an engine: queue, admission, cancellation, failures and the end of it all."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from trtspec.backends.reference.config import EngineConfig
from trtspec.backends.reference.core import Core
from trtspec.backends.reference.request import EngineStats, FinishReason, Request, Result, Ticket, Update
from trtspec.backends.reference.sequence import Running
from trtspec.backends.reference.validate import check_request

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Running)
W = TypeVar("W", bound="Worker[Any]")


class Worker(ABC, Generic[R]):
    """Runs requests on one thread. Subclasses say how a request gets its slots and what one step is."""

    def __init__(self, config: EngineConfig, name: str) -> None:
        self.config = config
        self._wake = threading.Condition()
        self._waiting: deque[R] = deque()
        self._running: list[R] = []
        self._closing = False
        self._requests = self._tokens = self._drafted = self._accepted = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Request, on_update: Callable[[Update], None]) -> Ticket:
        """Queue a request. Raises ValueError (one line) at once for a bad one, RuntimeError after close().

        `on_update` runs on the worker thread, once per emitted step; the last call has `finished`. It must not block.
        """
        check_request(request, self.config)
        running = self._make(request, on_update)
        with self._wake:
            if self._closing:
                raise RuntimeError("the engine is closed")
            self._waiting.append(running)
            self._wake.notify()
        return running

    def generate(self, request: Request) -> Result:
        """Submit and wait. Raises RuntimeError when the request ended with finish_reason "error"."""
        updates: list[Update] = []
        done = threading.Event()

        def collect(update: Update) -> None:
            updates.append(update)
            if update.finished:
                done.set()

        self.submit(request, collect)
        done.wait()
        return _joined(updates)

    def stats(self) -> EngineStats:
        """Counters so far; those of forward passes are the target's."""
        core = self._cores()[0]
        with self._wake:
            sizes = dict(core.batch_sizes)
            return EngineStats(
                requests=self._requests,
                prefilled=core.prefilled,
                reused=core.reused,
                steps=sum(sizes.values()),
                tokens=self._tokens,
                drafted=self._drafted,
                accepted=self._accepted,
                batch_sizes=sizes,
                active=len(self._running),
                waiting=len(self._waiting),
            )

    def close(self) -> None:
        """End the worker; running requests get a last update "cancelled". Safe to call twice."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self: W) -> W:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def forget(self) -> None:
        """Drop what idle slots hold, so that the next request computes all of its prompt."""
        with self._wake:
            for core in self._cores():
                core.pool.forget()

    @abstractmethod
    def _cores(self) -> tuple[Core, ...]:
        """The models this worker steps, the target first."""

    @abstractmethod
    def _make(self, request: Request, on_update: Callable[[Update], None]) -> R:
        """The state of a new request."""

    @abstractmethod
    def _admit(self, running: R) -> bool:
        """Give the request its slots; False when there are none now."""

    @abstractmethod
    def _release(self, running: R, intact: bool) -> None:
        """Take the slots back; `intact` says whether the cache can be trusted."""

    @abstractmethod
    def _advance(self, running: list[R]) -> None:
        """One step of all running requests, each reported by `_report`."""

    def _work(self) -> None:
        torch.set_num_threads(self.config.threads)
        with torch.inference_mode():
            while self._wait_for_work():
                self._turn()
        for running in (*self._running, *self._waiting):
            self._end(running, "cancelled")
        self._running, self._waiting = [], deque()

    def _wait_for_work(self) -> bool:
        """Blocks while idle; False when the engine closes."""
        with self._wake:
            while not (self._closing or self._waiting or self._running):
                self._wake.wait()
            return not self._closing

    def _turn(self) -> None:
        self._drop_cancelled()
        self._admit_waiting()
        if not self._running:
            return
        try:
            self._advance(self._running)
        except Exception as error:  # a failed step ends its requests, never the worker
            log.exception("a step of the reference engine failed")
            for running in self._running:
                if not running.finish:
                    self._release(running, intact=False)
                    self._end(running, "error", f"{type(error).__name__}: {error}")
        with self._wake:
            self._running = [running for running in self._running if not running.finish]

    def _drop_cancelled(self) -> None:
        if not any(running.cancelled for running in (*self._running, *self._waiting)):
            return
        for running in self._running:
            if running.cancelled:
                self._release(running, intact=True)
                self._end(running, "cancelled")
        with self._wake:
            gone = [running for running in self._waiting if running.cancelled]
            self._waiting = deque(running for running in self._waiting if not running.cancelled)
            self._running = [running for running in self._running if not running.finish]
        for running in gone:
            self._end(running, "cancelled")

    def _admit_waiting(self) -> None:
        while len(self._running) < self.config.max_batch_size:
            with self._wake:
                if not self._waiting:
                    return
                running = self._waiting[0]
                if not self._admit(running):
                    return
                self._waiting.popleft()
                self._running.append(running)
                self._requests += 1

    def _report(self, running: R, update: Update) -> None:
        """Hand out an update; a finished request gives its slots back first."""
        self._tokens += len(update.new_ids)
        if update.finished:
            self._drafted += update.drafted
            self._accepted += update.accepted
            self._release(running, intact=True)
        self._call(running, update)

    def _end(self, running: R, reason: FinishReason, error: str | None = None) -> None:
        running.finish = reason
        self._call(
            running,
            Update((), True, reason, accepted=running.accepted, drafted=running.drafted, error=error),
        )

    def _call(self, running: R, update: Update) -> None:
        try:
            running.on_update(update)
        except Exception:  # the caller's fault must not take other requests down
            log.exception("on_update of request %s failed; the request is cancelled", running.request.request_id)
            running.cancel()


def _joined(updates: list[Update]) -> Result:
    last = updates[-1]
    if last.finish_reason == "error":
        raise RuntimeError(last.error)
    logits = [u.logits for u in updates if u.logits is not None]
    log_probs = [u.log_probs for u in updates if u.log_probs is not None]
    context = [u.context_logits for u in updates if u.context_logits is not None]
    return Result(
        ids=tuple(token for update in updates for token in update.new_ids),
        finish_reason=last.finish_reason,
        accepted=last.accepted,
        drafted=last.drafted,
        logits=np.concatenate(logits) if logits else None,
        log_probs=np.concatenate(log_probs) if log_probs else None,
        context_logits=context[0] if context else None,
        histogram=last.histogram,
    )
