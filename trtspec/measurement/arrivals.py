"""When requests come: independent users, whatever is still running (Poisson), drawn with a seed."""

from __future__ import annotations

import numpy as np


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Seconds from the start at which requests arrive, `rate` a second on average; the same for the same seed."""
    rng = np.random.default_rng([seed, round(rate * 1e6)])
    times: list[float] = []
    now = float(rng.exponential(1.0 / rate))
    while now < seconds:
        times.append(now)
        now += float(rng.exponential(1.0 / rate))
    return times
