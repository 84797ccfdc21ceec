"""Live acceptance decides: drafts of a task stop while few of them are accepted. Imports nothing of Triton.

α is accepted ÷ tested draft tokens over the last `window` tested tokens of a task. While drafts run, α below `floor`
stops them. While they are stopped, every `probe_every`-th request of the task speculates all the same, and α of at
least `recover` over a whole window of such probes starts them again. Either change empties the window, so the next
one needs a whole window of new evidence; between `floor` and `recover` nothing ever changes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """When the guard acts; `floor` < `recover`."""

    floor: float
    recover: float
    window: int
    """Tested tokens."""
    probe_every: int
    """Requests."""


class Window:
    """The last rounds that hold at least `size` tested tokens."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rounds: deque[tuple[int, int]] = deque()
        self._tested = 0
        self._accepted = 0

    def add(self, tested: int, accepted: int) -> None:
        """One round."""
        self._rounds.append((tested, accepted))
        self._tested += tested
        self._accepted += accepted
        while self._tested - self._rounds[0][0] >= self._size:
            oldest = self._rounds.popleft()
            self._tested -= oldest[0]
            self._accepted -= oldest[1]

    @property
    def rate(self) -> float | None:
        """α; None until the window is full."""
        return self._accepted / self._tested if self._tested >= self._size else None


class _Task:
    def __init__(self, window: int) -> None:
        self.stopped = False
        self.window = Window(window)
        self.requests = 0
        """Since drafts were stopped."""


Changed = Callable[[str, bool, float], None]


class Guard:
    """The state of every task; any thread may ask and tell. Without a band it never acts.

    `changed(task, stopped, rate)` hears of every change, outside the lock.
    """

    def __init__(self, band: Band | None, changed: Changed) -> None:
        self._band = band
        self._changed = changed
        self._lock = threading.Lock()
        self._tasks: dict[str, _Task] = {}

    def begins(self, task: str) -> bool:
        """A request of the task begins; true makes it a probe, which speculates whatever the state."""
        if self._band is None:
            return False
        with self._lock:
            state = self._tasks.get(task)
            if state is None or not state.stopped:
                return False
            state.requests += 1
            return state.requests % self._band.probe_every == 0

    def stops(self, task: str) -> bool:
        """Whether drafts of the task are stopped."""
        state = self._tasks.get(task)
        return state is not None and state.stopped

    def saw(self, task: str, tested: int, accepted: int, probe: bool = False) -> None:
        """A speculative round of the task has ended."""
        if self._band is None or tested == 0:
            return
        with self._lock:
            state = self._tasks.setdefault(task, _Task(self._band.window))
            if state.stopped and not probe:
                return  # begun before drafts were stopped: its evidence has been heard
            state.window.add(tested, accepted)
            rate = state.window.rate
            if rate is None or not (rate >= self._band.recover if state.stopped else rate < self._band.floor):
                return
            state.stopped = stopped = not state.stopped
            state.window, state.requests = Window(self._band.window), 0
        self._changed(task, stopped, rate)
