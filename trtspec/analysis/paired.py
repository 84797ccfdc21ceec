"""The difference of two ratios: on the same prompts, or on prompts of two independent runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from trtspec.analysis.intervals import Interval, left_out, measured, standard_error

Pairs = Sequence[tuple[float, float]]
"""(numerator, denominator) of each prompt."""


def paired_difference(before: Pairs, after: Pairs, *, level: float = 0.95) -> Interval | None:
    """sum(numerators) / sum(denominators) after, less that before, prompt by prompt in the same order.

    A jackknife over prompts with Student's t, which keeps the pairs together: what is hard about a prompt is hard on
    both sides and cancels. None when a side has nothing measured; with fewer than three prompts the interval is all
    that a difference of shares can be.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} prompts before, {len(after)} after")
    sides = np.array([before, after], np.float64).reshape(2, -1, 2)
    totals = sides.sum(axis=1)
    if not (totals[:, 1] > 0).all():
        return None
    point, n = float(totals[1, 0] / totals[1, 1] - totals[0, 0] / totals[0, 1]), sides.shape[1]
    rest = totals[:, None, :] - sides
    if n < 3 or not (rest[:, :, 1] > 0).all():
        return Interval(-1.0, 1.0, point, n)
    without = rest[:, :, 0] / rest[:, :, 1]
    half = float(stdtrit(n - 1, (1 + level) / 2)) * standard_error(without[1] - without[0])
    return Interval(point - half, point + half, point, n)


def independent_difference(before: Pairs, after: Pairs, *, level: float = 0.95) -> Interval | None:
    """The same for two sets of prompts that have nothing to do with each other; degrees of freedom by Welch 1947.

    `n` is the smaller of the two numbers of prompts. None when a side has nothing measured.
    """
    sides = [measured(*zip(*side, strict=True)) for side in (before, after) if side]
    if len(sides) < 2 or any(len(num) == 0 for num, _ in sides):
        return None
    ratios = [float(num.sum() / den.sum()) for num, den in sides]
    point, n = ratios[1] - ratios[0], min(len(num) for num, _ in sides)
    if n < 3:
        return Interval(-1.0, 1.0, point, n)
    variances = np.array([standard_error(left_out(num, den)) ** 2 for num, den in sides])
    free = np.array([len(num) - 1 for num, _ in sides])
    if not variances.any():
        return Interval(point, point, point, n)
    freedom = float(variances.sum() ** 2 / (variances**2 / free).sum())
    half = float(stdtrit(freedom, (1 + level) / 2)) * float(np.sqrt(variances.sum()))
    return Interval(point - half, point + half, point, n)
