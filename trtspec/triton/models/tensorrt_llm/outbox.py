"""A thread that does small things one after another, and knows when it has nothing to do."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Outbox:
    """For one thread that puts."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._put = 0
        self._done = 0
        self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether everything that was put has been done. The thread that puts may rely on it until it puts again."""
        return self._put == self._done

    def put(self, task: Callable[[], None]) -> None:
        """Have it done after all that was put before."""
        self._put += 1
        self._tasks.put(task)

    def close(self) -> None:
        """Do what is left, then end the thread."""
        self._tasks.put(None)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:  # one answer that cannot be sent must not keep back the others
                log.exception("an answer could not be sent")
            self._done += 1
