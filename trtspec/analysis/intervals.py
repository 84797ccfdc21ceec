"""Confidence intervals over prompts. Rounds of one prompt are not independent: prompts are what is resampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, logit

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A point estimate between two bounds, from n independent units (prompts)."""

    low: float
    high: float
    point: float
    n: int


def bootstrap_ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 4000,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> Interval | None:
    """Interval of sum(numerators) / sum(denominators), one pair per prompt.

    The hull of two intervals, each of which alone covers too little with few or skewed prompts: the BCa bootstrap
    (Efron 1987) with tail levels expanded for n (Hesterberg 2015), and Student's t on the linearised ratio
    (Cochran 1977, 6.3), taken on the log-odds of its place within `bounds`, the values the ratio can have.
    Prompts with denominator 0 say nothing and are left out. Where one prompt alone was measured the interval is all of
    `bounds`, and where prompts show no spread it is Wilson's with each prompt as one trial.
    None when nothing was measured, or no interval can be given without bounds.
    """
    num, den = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    if num.shape != den.shape or num.ndim != 1 or (den < 0).any():
        raise ValueError("one numerator and one denominator (not negative) per prompt")
    num, den = num[den > 0], den[den > 0]
    n = len(num)
    if n == 0:
        return None
    point = float(num.sum() / den.sum())
    if n == 1:
        return Interval(*bounds, point, n) if bounds else None
    if np.ptp(num / den) <= 1e-12 * max(1.0, abs(point)):
        return _without_spread(point, n, level, bounds)
    draws = _resampled(num, den, seed, resamples)
    ends = [*np.quantile(draws, _bca_levels(num, den, point, draws, level)), *_t_ends(num, den, point, level, bounds)]
    return Interval(min(*map(float, ends), point), max(*map(float, ends), point), point, n)


def _resampled(num: Floats, den: Floats, seed: int, resamples: int) -> Floats:
    """The ratio of `resamples` sets of n prompts drawn with replacement; in chunks, so that memory stays small."""
    rng, n, chunk = np.random.default_rng(seed), len(num), 250
    draws = []
    for start in range(0, resamples, chunk):
        times = rng.multinomial(n, np.full(n, 1 / n), size=min(chunk, resamples - start))
        draws.append((times @ num) / (times @ den))
    return np.concatenate(draws)


def _bca_levels(num: Floats, den: Floats, point: float, draws: Floats, level: float) -> Floats:
    """The two quantile levels: expanded for n, then shifted for bias (z0) and skew (a, from the jackknife)."""
    n = len(num)
    tail = np.sqrt(n / (n - 1)) * stats.t.ppf((1 - level) / 2, n - 1)
    below = ((draws < point).sum() + 0.5 * (draws == point).sum()) / len(draws)
    z0 = stats.norm.ppf(np.clip(below, 1 / len(draws), 1 - 1 / len(draws)))
    left_out = (num.sum() - num) / (den.sum() - den)
    gaps = left_out.mean() - left_out
    skew = float((gaps**3).sum() / (6 * (gaps**2).sum() ** 1.5)) if gaps.any() else 0.0
    z = np.array([z0 + tail, z0 - tail])
    # The shift has a pole; beyond it the level is the outermost resample.
    room = np.maximum(1 - skew * z, 0.05)
    return np.asarray(stats.norm.cdf(z0 + z / room), np.float64)


def _t_ends(
    num: Floats, den: Floats, point: float, level: float, bounds: tuple[float, float] | None
) -> tuple[float, float]:
    """Student's t with the variance of a ratio of sums, on log-odds where the ratio is bounded."""
    n = len(num)
    error = np.sqrt(n / (n - 1) * ((num - point * den) ** 2).sum()) / den.sum()
    half = float(stats.t.ppf((1 + level) / 2, n - 1) * error)
    if bounds is None:
        return point - half, point + half
    floor, width = bounds[0], bounds[1] - bounds[0]
    p = (point - floor) / width
    if not 0.0 < p < 1.0:
        raise ValueError(f"the ratio {point} is outside its bounds {bounds}")
    steps = logit(p) + np.array([-1.0, 1.0]) * half / width / (p * (1 - p))
    low, high = floor + width * expit(steps)
    return float(low), float(high)


def _without_spread(point: float, n: int, level: float, bounds: tuple[float, float] | None) -> Interval | None:
    """Wilson 1927 on the ratio's place within its bounds, a prompt being one trial."""
    if bounds is None:
        return None
    floor, width = bounds[0], bounds[1] - bounds[0]
    p = (point - floor) / width
    z = float(stats.norm.ppf((1 + level) / 2))
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = floor + width * max(0.0, middle - half), floor + width * min(1.0, middle + half)
    return Interval(min(float(low), point), max(float(high), point), point, n)
