"""Watching over requests: has the client gone, is the time over, does a call hang? One thread looks after all."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from calls import Call, Caller, Spent

PERIOD = 0.05
"""Seconds between two looks; each costs a message to the server and one back."""
WAITING_PERIOD = 0.25
"""The same for a request that waits for its turn."""
GRACE = 0.5
"""Seconds that a call may take to end after it was asked to."""
CANCELLED, DEADLINE = "cancelled", "deadline"


class Watched:
    """One request. `over` says why its answer is not wanted any more: the client has gone, or the time is over."""

    def __init__(self, sender: Any, caller: Caller, timeout: float | None = None) -> None:
        self.sender = sender
        self.caller = caller
        self.timeout = timeout
        self.arrived = time.monotonic()
        self.over = ""
        self.owner: Any = None
        """Whom the watch tells of; nothing that it uses."""
        self.waiting = False
        self._looked = 0.0
        self._ended = False
        self._looking = threading.Lock()

    def look(self, spent: Spent, now: float, slow: Callable[[Call, float], bool]) -> Call | None:
        """Ask the server, stop what must be stopped; returns a call that does not stop."""
        with self._looking:
            if self._ended or (self.waiting and now - self._looked < WAITING_PERIOD and not self._late(now)):
                return None
            self._looked = now
            if not self.over:
                self.over = DEADLINE if self._late(now) else CANCELLED if spent.is_cancelled(self.sender) else ""
            call = self.caller.call
            if call is None:
                return None
            if call.stopped is None:
                if self.over or slow(call, now):
                    self.caller.stop(call, slow=not self.over)
                return None
            return call if now - call.stopped > GRACE else None

    def end(self) -> None:
        """No look begins any more, and none is under way."""
        with self._looking:
            self._ended = True

    def _late(self, now: float) -> bool:
        return self.timeout is not None and now - self.arrived >= self.timeout


class Watch:
    """Looks at every request in turn, and sleeps while there is none.

    `slow` tells calls that take too long. `left` hears of a request that is over, as long as it is watched; `stuck` of
    one whose call was given up, and which must go on without the thread that called.
    """

    def __init__(
        self,
        spent: Spent,
        slow: Callable[[Call, float], bool],
        left: Callable[[Any], None],
        stuck: Callable[[Any, Call], None],
    ) -> None:
        self._spent = spent
        self._slow = slow
        self._left = left
        self._stuck = stuck
        self._watched: set[Watched] = set()
        self._ended: deque[Any] = deque(maxlen=256)
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def add(self, watched: Watched) -> None:
        """Begin to look."""
        with self._changed:
            self._watched.add(watched)
            self._changed.notify()

    def remove(self, watched: Watched) -> None:
        """The request has ended."""
        watched.end()
        with self._changed:
            self._watched.discard(watched)
            # Triton's thread that answers a look touches the sender a moment longer than the look takes.
            self._ended.append(watched.sender)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._watched)
                if self._closed:
                    return
                watched = list(self._watched)
            for each in watched:
                try:
                    self._look(each)
                except Exception:
                    traceback.print_exc()  # into the server's log; the others must be looked after
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=PERIOD)

    def _look(self, watched: Watched) -> None:
        hanging = watched.look(self._spent, time.monotonic(), self._slow)
        if watched.over:
            self._left(watched)
        if hanging is not None and watched.caller.give_up(hanging):
            self._stuck(watched, hanging)
