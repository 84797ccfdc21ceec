"""Watching over running requests: has the client gone? One thread asks for all of them."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any

from calls import Caller, CallFailed, Spent

PERIOD = 0.05
"""Seconds between two looks; each costs a message to the server and one back."""


class Watched:
    """One running request. `cancelled` becomes true when its client has gone."""

    def __init__(self, sender: Any, caller: Caller) -> None:
        self.sender = sender
        self.cancelled = False
        self.caller = caller
        self._over = False
        self._looking = threading.Lock()

    def look(self, spent: Spent) -> None:
        """Ask the server; if the client has gone, stop the call in progress."""
        with self._looking:
            if self._over or self.cancelled or not spent.is_cancelled(self.sender):
                return
            self.cancelled = True
            with contextlib.suppress(CallFailed):  # it may have ended by itself
                self.caller.stop()

    def end(self) -> None:
        """No look begins any more, and none is under way."""
        with self._looking:
            self._over = True


class Watch:
    """Asks about every running request in turn, and sleeps while there is none."""

    def __init__(self, spent: Spent) -> None:
        self._spent = spent
        self._running: set[Watched] = set()
        self._ended: deque[Any] = deque(maxlen=256)
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def add(self, watched: Watched) -> None:
        """Begin to look."""
        with self._changed:
            self._running.add(watched)
            self._changed.notify()

    def remove(self, watched: Watched) -> None:
        """The request is over."""
        watched.end()
        with self._changed:
            self._running.discard(watched)
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
                self._changed.wait_for(lambda: self._closed or self._running)
                if self._closed:
                    return
                running = list(self._running)
            for watched in running:
                watched.look(self._spent)
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=PERIOD)
