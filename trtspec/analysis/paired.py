"""The difference of two ratios that were measured on the same prompts, with an interval over prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trtspec.analysis.intervals import Interval


def paired_difference(
    before: Sequence[tuple[float, float]],
    after: Sequence[tuple[float, float]],
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 4000,
) -> Interval | None:
    """sum(numerators) / sum(denominators) after, less that before; one (numerator, denominator) per prompt each.

    A percentile bootstrap over prompts (Efron 1979), which keeps the pairs together: what is hard about a prompt is
    hard on both sides and cancels. None when a side has nothing measured; with fewer than three prompts the interval is
    all that a difference of shares can be.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} prompts before, {len(after)} after")
    sides = np.array([before, after], np.float64).reshape(2, -1, 2)
    if not (sides[:, :, 1].sum(axis=1) > 0).all():
        return None
    point, n = _difference(sides), sides.shape[1]
    if n < 3:
        return Interval(-1.0, 1.0, point, n)
    picks = np.random.default_rng(seed).integers(n, size=(resamples, n))
    drawn = sides[:, picks].sum(axis=2)
    kept = drawn[:, (drawn[:, :, 1] > 0).all(axis=0)]
    draws = kept[1, :, 0] / kept[1, :, 1] - kept[0, :, 0] / kept[0, :, 1]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(min(float(low), point), max(float(high), point), point, n)


def _difference(sides: np.ndarray) -> float:  # type: ignore[type-arg]
    sums = sides.sum(axis=1)
    return float(sums[1, 0] / sums[1, 1] - sums[0, 0] / sums[0, 1])
