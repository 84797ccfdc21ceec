"""The worker thread of an engine: queue, admission, cancellation, failures and the end of it all."""

from __future__ import annotations

import logging
import threading
import time
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
TURNS = 16
"""Steps after which a request is no longer short."""
GAP, CROWD = 0.0003, 0.05
"""Seconds, see :meth:`Worker._quiet`."""
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
        self._helped = False
        """another thread is in the worker's place"""
        self._ended = self._crowded = 0.0
        """when the last request ended; when there was last more than one"""
        self._requests = self._tokens = self._drafted = self._accepted = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Request, on_update: Callable[[Update], None], *, here: bool = False) -> Ticket:
        """Queue a request. Raises ValueError (one line) at once for a bad one, RuntimeError after close().

        `on_update` runs on the worker thread, once per emitted step; the last call has `finished`. It must not block.
        `here`: where nothing else is to be done, the calling thread takes the worker's place for the few steps of a
        short request, because waking the worker would cost as much as a small model's step.
        """
        check_request(request, self.config)
        running = self._make(request, on_update)
        with self._wake:
            if self._closing:
                raise RuntimeError("the engine is closed")
            here = here and self._quiet()
            self._waiting.append(running)
            self._helped = self._helped or here
            if not self._helped:
                self._wake.notify()
        if here:
            self._help(running)
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

    @property
    def alone(self) -> bool:
        """For `on_update`: whether no other request runs or waits, so that taking a little time delays nobody."""
        return len(self._running) <= 1 and not self._waiting

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

    def _quiet(self) -> bool:
        """Whether a request comes alone: none is here, and none has just left or been here beside another.

        A thread that works in the worker's place cannot bring further requests meanwhile, so that requests that come
        one by one, but thickly, would never be batched. And each such thread would get torch threads of its own.
        """
        if self._helped or self._running or self._waiting or self.config.threads > 1:
            return False
        now = time.monotonic()
        return now - self._ended > GAP and now - self._crowded > CROWD

    def _help(self, running: R) -> None:
        """Be the worker until `running` has finished or turns out to be long."""
        try:
            _use_threads(1)
            with torch.inference_mode():
                for _ in range(TURNS):
                    if running.finish or self._closing:
                        break
                    self._turn()
        finally:
            with self._wake:
                self._helped = False
                if self._running or self._waiting or self._closing:
                    self._wake.notify()

    def _work(self) -> None:
        _use_threads(self.config.threads)
        with torch.inference_mode():
            while self._wait_for_work():
                self._turn()
        for running in (*self._running, *self._waiting):
            self._end(running, "cancelled")
        self._running, self._waiting = [], deque()

    def _wait_for_work(self) -> bool:
        """Blocks while idle; False when the engine closes."""
        with self._wake:
            while self._helped or not (self._closing or self._waiting or self._running):
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
            now = time.monotonic()
            if len(self._running) + len(self._waiting) > 1:
                self._crowded = now
            self._running = [running for running in self._running if not running.finish]
            if not self._running:
                self._ended = now

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


def _use_threads(count: int) -> None:
    """Torch threads of steps on this thread. A thread begins with the setting that any thread made last, and takes it
    over when it first asks for it, so it must ask before it makes its own."""
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


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
