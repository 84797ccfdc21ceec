"""The difference of two estimates of which only the intervals are known."""

from __future__ import annotations

import numpy as np

from trtspec.analysis.intervals import Interval


def difference_of(before: Interval, after: Interval) -> Interval:
    """after less before, by squaring and adding the distances from each estimate to its own bounds.

    Each side's bounds carry its variance, so that intervals which are not symmetric stay so (Newcombe 1998, method 10;
    Zou and Donner 2008 for any estimate). For estimates that have nothing to do with each other; of ratios over prompts
    the prompts themselves say more: `paired`.
    """
    point = after.point - before.point
    down = float(np.hypot(after.point - after.low, before.high - before.point))
    up = float(np.hypot(after.high - after.point, before.point - before.low))
    return Interval(point - down, point + up, point, min(before.n, after.n))
