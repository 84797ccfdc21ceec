"""How long training goes on, and the learning rate that follows from it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

WARMUP = 0.02


@dataclass
class Budget:
    """Ends after `steps` steps where those are given, else after `minutes` of training, over all resumed runs.

    Steps make a run repeatable; minutes make it end in time on any machine.
    """

    minutes: float
    steps: int = 0
    step: int = 0
    spent: float = 0.0
    """Seconds of training so far."""
    _tick: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """The clock runs from here: what came before (loading, evaluating) is not training."""
        self._tick = time.monotonic()

    def advance(self) -> None:
        """One more step is done."""
        now = time.monotonic()
        self.spent += now - self._tick
        self._tick = now
        self.step += 1

    def progress(self) -> float:
        """Share of the budget that is used, in [0, 1]."""
        return min(1.0, self.step / self.steps if self.steps else self.spent / (self.minutes * 60))


def rate_factor(progress: float) -> float:
    """Factor on the learning rate: linear warm-up, then a cosine to zero (Loshchilov and Hutter 2017, one cycle)."""
    if progress < WARMUP:
        return (progress + 1e-3) / WARMUP
    return 0.5 * (1.0 + math.cos(math.pi * (progress - WARMUP) / (1.0 - WARMUP)))
