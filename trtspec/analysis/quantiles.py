"""Intervals of percentiles, without assuming a distribution: latencies have none with a name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr

from trtspec.analysis.intervals import Interval


def quantile_interval(values: Sequence[float], q: float, *, level: float = 0.95) -> Interval | None:
    """Two of the sorted values between which the quantile q lies with `level` (binomial; Hahn and Meeker 1991, 5.2).

    An end for which there are too few values is infinite: the 99th percentile has an upper end from 368 values on.
    None without values.
    """
    found = np.sort(np.asarray(values, np.float64))
    n, tail = len(found), (1.0 - level) / 2
    if n == 0:
        return None
    # reached[j]: chance that at most j values lie below the quantile.
    reached = bdtr(np.arange(n), n, q)
    below = int(np.searchsorted(reached, tail, side="right"))  # values that lie under it for certain
    above = int(np.searchsorted(reached, 1.0 - tail, side="left"))
    low = float(found[below - 1]) if below else -np.inf
    high = float(found[above]) if above < n else np.inf
    point = float(np.quantile(found, q))
    return Interval(min(low, point), max(high, point), point, n)
