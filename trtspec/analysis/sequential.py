"""Looking while measuring, without more errors than looking once.

An interval of 95 % that is looked at after every block, and acted on when it first decides, errs far more often than in
5 % of runs. Here the error is spent over the looks (Lan and DeMets 1983): of the error e of a side no more than
2 - 2·Φ(z / √t) is gone at the fraction t of the budget, z being the normal quantile of 1 - e/2 (their first spending
function, after O'Brien and Fleming 1979), which leaves nearly all of it for the end. The interval at each look is as
wide as that asks for (repeated confidence intervals, Jennison and Turnbull 1989): it holds, whatever made the
measurement stop. `critical` reproduces the published tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from trtspec.analysis.intervals import Interval

Side = Literal["above", "below", "between"]
Floats = NDArray[np.float64]
_POINTS = 401
_FARTHEST = 8.0


@dataclass(frozen=True)
class Looks:
    """When a measurement was looked at: prompts measured at each look, the last one being now.

    `budget` is how many were planned. `final` says that nothing can follow although fewer were measured (the time was
    up): the whole error may then be spent.
    """

    budget: int
    at: tuple[int, ...]
    final: bool = False

    def __post_init__(self) -> None:
        if self.budget < 1 or any(n < 1 for n in self.at) or list(self.at) != sorted(self.at):
            raise ValueError(f"looks at {self.at} of a budget of {self.budget} prompts")

    def level(self, level: float = 0.95) -> float:
        """The level of a plain interval now, that makes intervals of all looks together hold with `level`."""
        fractions = tuple(dict.fromkeys(min(1.0, n / self.budget) for n in self.at))
        if not fractions or fractions == (1.0,):
            return level
        return float(2.0 * ndtr(critical(fractions, 1.0 - level, final=self.final)[-1]) - 1.0)


def side(interval: Interval, limit: float) -> Side:
    """Where the whole interval lies."""
    if interval.low >= limit:
        return "above"
    return "below" if interval.high < limit else "between"


def drop_verdict(drop: Interval, tolerance: float) -> Literal["pass", "fail", "undecided"]:
    """Whether a figure got worse, from the interval of (before - after).

    Pass when a drop as large as the tolerance is ruled out; fail when it is not and "no worse" is; else undecided.
    So a drop that is certain and certainly smaller than the tolerance passes.
    """
    if drop.high < tolerance:
        return "pass"
    return "fail" if drop.low > 0.0 else "undecided"


@lru_cache(maxsize=256)
def critical(fractions: tuple[float, ...], error: float, *, final: bool = False) -> tuple[float, ...]:
    """How many standard errors each look must go to both sides, at increasing fractions of the information.

    The chance to be outside for the first time at a look is what the spending function grants it; it is integrated
    numerically along the looks (Armitage, McPherson and Rowe 1969).
    """
    spent = [_spent(t, error) for t in fractions]
    if final:
        spent[-1] = error
    found: list[float] = []
    grid, density, last = np.zeros(1), np.ones(1), 0.0
    for t, total, before in zip(fractions, spent, [0.0, *spent], strict=False):
        step = float(np.sqrt(t - last))
        bound = _solve(grid, density, step, float(np.sqrt(t)), total - before)
        found.append(bound)
        grid, density = _inside(grid, density, step, bound * float(np.sqrt(t)))
        last = t
    return tuple(found)


def _spent(fraction: float, error: float) -> float:
    """Both sides together."""
    return float(4.0 * ndtr(ndtri(error / 4.0) / np.sqrt(fraction)))


def _solve(grid: Floats, density: Floats, step: float, scale: float, wanted: float) -> float:
    """The bound that is crossed with the chance `wanted`; found by halving."""
    low, high = 0.0, _FARTHEST
    for _ in range(60):
        middle = (low + high) / 2
        crossed = ndtr((grid - middle * scale) / step) + ndtr((-middle * scale - grid) / step)
        low, high = (middle, high) if float((density * crossed).sum()) > wanted else (low, middle)
    return high


def _inside(grid: Floats, density: Floats, step: float, edge: float) -> tuple[Floats, Floats]:
    """Where the sum stands after this look and inside its bounds: points and the mass at each."""
    points = np.linspace(-edge, edge, _POINTS)
    apart = (points[:, None] - grid[None, :]) / step
    mass = (np.exp(-0.5 * apart**2) @ density) / (step * np.sqrt(2.0 * np.pi))
    weights = np.full(_POINTS, points[1] - points[0])
    weights[[0, -1]] /= 2
    return points, mass * weights
