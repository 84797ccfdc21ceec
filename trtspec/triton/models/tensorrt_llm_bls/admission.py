"""How many requests are worked on at once, how many may wait, and the threads that do the work.

A thread per running request, made when it is first needed: a request spends its time in calls of other models, which
hold no lock and no GIL, and asyncio would make the same calls from threads of its own. All threads are daemons,
because one whose call never returns cannot be ended.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from calls import Superseded


class Overloaded(Exception):
    """Too many requests wait already; its text is the line that the client gets."""


class Admission:
    """First come, first served: `most` at once, `room` in the queue, and more are turned away.

    `work` does one request, and returns what is left to do when its place is free again: the last response, after which
    a client may send its next request. When it raises Superseded, another thread has taken the request over.
    """

    def __init__(self, most: int, room: int, work: Callable[[Any], Callable[[], None]]) -> None:
        self._most = most
        self._room = room
        self._work = work
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._drained = threading.Condition(self._lock)
        self._queue: dict[Any, None] = {}
        self._threads = 0
        self._idle = 0
        self._closed = False
        self.running = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def in_flight(self) -> int:
        """All requests that have not been answered."""
        return self.running + len(self._queue)

    def submit(self, request: Any) -> None:
        """Take a request; Overloaded if there is no room."""
        with self._lock:
            if self._closed:
                raise Overloaded("overloaded: this server is going away")
            if self.in_flight >= self._most + self._room:
                raise Overloaded(
                    f"overloaded: {self.running} requests are being answered and {self.waiting} wait; try again later"
                )
            self._queue[request] = None
            if self._idle < len(self._queue) and self._threads < self._most:
                self._threads += 1
                self._start(self._run)
            self._arrived.notify()

    def withdraw(self, request: Any) -> bool:
        """Take a request out of the queue; False if its turn has come already."""
        with self._lock:
            found = self._queue.pop(request, request) is None
            self._tell_if_drained()
            return found

    def replace(self, request: Any) -> None:
        """A request's thread hangs for good: a new one takes its place and goes on with the request."""
        self._start(self._run, request)

    def close(self, timeout: float | None = None) -> bool:
        """Take no more, and wait for those that were taken; False if some are not done in time."""
        with self._lock:
            self._closed = True
            self._arrived.notify_all()
            return self._drained.wait_for(lambda: not self.in_flight, timeout)

    def _start(self, *what: Any) -> None:
        threading.Thread(target=what[0], args=what[1:], name="request", daemon=True).start()

    def _run(self, request: Any = None) -> None:
        while request is not None or (request := self._next()) is not None:
            last: Callable[[], None] | None = None
            try:
                last = self._work(request)
            except Superseded:
                return
            except Exception:
                traceback.print_exc()  # into the server's log; the place must become free
            with self._lock:
                self.running -= 1
                self._tell_if_drained()
            # A sender that is closed already, say: a thread must outlive that.
            with contextlib.suppress(Exception):
                if last:
                    last()
            request = last = None

    def _next(self) -> Any:
        with self._lock:
            self._idle += 1
            self._arrived.wait_for(lambda: self._queue or self._closed)
            self._idle -= 1
            if not self._queue:
                return None
            request = next(iter(self._queue))
            del self._queue[request]
            self.running += 1
            return request

    def _tell_if_drained(self) -> None:
        if not self.in_flight:
            self._drained.notify_all()


class Breaker:
    """Pauses drafting after failures in a row, so that not every request pays for a draft that is gone.

    After the pause one draft call is tried; if it fails, too, the next pause is twice as long. Each call that never
    returns keeps a thread of the server, so after `most_hanging` of them nothing is tried any more.
    """

    FAILURES = 3
    PAUSE, LONGEST = 5.0, 60.0

    def __init__(self, most_hanging: int = 8, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_hanging = most_hanging
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = self.PAUSE
        self._until = 0.0
        self._trying = False
        self.hanging = 0
        """Calls that were given up and have not returned."""
        self.open = ""
        """Why drafting pauses; empty while it does not."""

    def refuses(self) -> str:
        """Why there can be no draft now; empty where one may be tried."""
        if not self.open:
            return ""
        with self._lock:
            if self.open and (self._clock() < self._until or self.hanging >= self._most_hanging):
                return self.open
            # This one tries; the others wait until it is known how that went, but not for ever.
            self._trying = True
            self._until = self._clock() + self._pause
            return ""

    def succeeded(self) -> bool:
        """A draft call has worked; true if that ends a pause."""
        if not self._failures:
            return False
        with self._lock:
            ended, self.open = bool(self.open), ""
            self._failures, self._pause, self._trying = 0, self.PAUSE, False
            return ended

    def failed(self, reason: str) -> bool:
        """A draft call has failed; true if that begins a pause."""
        with self._lock:
            self._failures += 1
            if self._failures < self.FAILURES or (self.open and not self._trying):
                return False
            if self._trying:
                self._pause = min(2 * self._pause, self.LONGEST)
            began, self.open, self._trying = not self.open, reason, False
            self._until = self._clock() + self._pause
            return began

    def hangs(self, by: int) -> bool:
        """A call was given up (1), or one that was has returned after all (-1); true with the last that may hang."""
        with self._lock:
            self.hanging += by
            return by > 0 and self.hanging == self._most_hanging
