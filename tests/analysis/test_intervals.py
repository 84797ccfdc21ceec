"""Intervals cover the truth as often as they say, where rounds of one prompt resemble each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.simulated import Population
from benchmarks.statistics import coverage, independent, percentiles, speed_coverage
from trtspec.analysis.intervals import Interval, ratio_interval
from trtspec.analysis.quantiles import quantile_interval

RUNS = 500  # at 95 % the share that covers has a standard error of 1 %
TYPICAL = Population(0.75)


@pytest.mark.parametrize("prompts", [20, 100, 400])
@pytest.mark.parametrize("alpha", [0.3, 0.75])
def test_coverage(alpha: float, prompts: int) -> None:
    assert 0.92 <= coverage(Population(alpha), prompts, RUNS, seed=prompts) <= 0.98


def test_few_prompts_are_widened_honestly() -> None:
    """Six prompts: the plain bootstrap covers far less than it says."""
    assert coverage(TYPICAL, 6, RUNS, seed=2) >= 0.92
    assert coverage(TYPICAL, 6, RUNS, 2, percentiles) < 0.90


def test_acceptance_length_and_speed_are_covered_too() -> None:
    assert 0.92 <= coverage(TYPICAL, 60, RUNS, seed=3, of="length") <= 0.98
    assert 0.92 <= speed_coverage(8, RUNS, seed=4) <= 0.98


def test_the_simulation_tells_wrong_methods_apart() -> None:
    assert coverage(TYPICAL, 100, RUNS, 5, independent) < 0.80


def clustered(prompts: int, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    found = TYPICAL.counts(rng, *TYPICAL.prompts(rng, prompts))
    return found.accepted.tolist(), found.tested.tolist()


def width(found: Interval | None) -> float:
    assert found is not None
    return found.high - found.low


def test_more_prompts_make_it_narrower() -> None:
    rng = np.random.default_rng(0)
    widths = [np.mean([width(ratio_interval(*clustered(n, rng))) for _ in range(30)]) for n in (10, 40, 160)]
    assert widths[0] > 1.5 * widths[1] > 2 * widths[2]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=2, max_size=40), st.floats(0.5, 0.999))
def test_it_lies_within_its_bounds_around_its_point(pairs: list[tuple[int, int]], level: float) -> None:
    num, den = [min(a, d) for a, d in pairs], [d for _, d in pairs]
    found = ratio_interval(num, den, level=level)
    assert found is not None
    assert 0.0 <= found.low <= found.point <= found.high <= 1.0
    wider = ratio_interval(num, den, level=(1 + level) / 2)
    assert wider is not None
    assert wider.low <= found.low
    assert wider.high >= found.high


def test_it_is_the_jackknife_on_log_odds_with_half_of_halls_correction() -> None:
    """By hand: three prompts, the log-odds of the ratio without each of them; the ends are roots of Hall's cubic."""
    num, den = [3, 8, 5], [5, 9, 10]
    odds = np.array([np.log(p / (1 - p)) for p in (13 / 19, 8 / 15, 11 / 14)])
    pulls = odds.mean() - odds
    error, skew = np.sqrt(2 / 3 * np.sum(pulls**2)), np.sum(pulls**3) / np.sum(pulls**2) ** 1.5 / 2
    found = ratio_interval(num, den)
    assert found is not None
    for end, sign in ((found.low, 1), (found.high, -1)):
        t = (np.log(16 / 8) - np.log(end / (1 - end))) / error
        cubic = t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6
        assert cubic == pytest.approx(sign * stats.t.ppf(0.975, 2))


def test_one_prompt_apart_from_the_rest_is_no_certainty() -> None:
    """Without that prompt the ratio is 1 and its log-odds infinite."""
    found = ratio_interval([8] * 19 + [4], [8] * 20)
    assert found is not None
    assert found.low < 0.95
    assert found.high < 1.0


def test_the_point_is_the_ratio_of_sums_not_the_mean_of_ratios() -> None:
    found = ratio_interval([1, 90], [10, 100])
    assert found is not None
    assert found.point == pytest.approx(91 / 110)
    assert found.low <= found.point <= found.high


def test_nothing_measured_has_no_interval() -> None:
    assert ratio_interval([], []) is None
    assert ratio_interval([0, 0], [0, 0]) is None


def test_prompts_that_say_nothing_are_not_counted() -> None:
    assert ratio_interval([3, 0, 8], [5, 0, 9]) == ratio_interval([3, 8], [5, 9])


def test_one_prompt_could_be_anything() -> None:
    assert ratio_interval([7], [10]) == Interval(0.0, 1.0, 0.7, 1)
    assert ratio_interval([7], [10], bounds=None) is None


def test_equal_prompts_are_not_certainty() -> None:
    """20 prompts that accepted all: Wilson gives 20 / (20 + 1.96²) as the lower end."""
    found = ratio_interval([8] * 20, [8] * 20)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(20 / (20 + 1.959964**2), abs=1e-6), 1.0)


def test_a_gain_can_exceed_one_without_bounds() -> None:
    found = ratio_interval([2.1, 1.9, 2.2, 2.0], [1, 1, 1, 1], bounds=None)
    assert found is not None
    assert 1.5 < found.low < 2.05 < found.high < 2.6


@pytest.mark.parametrize(("num", "den"), [([1], [1, 2]), ([1, 2], [1, -2]), ([3, 5], [1, 2])])
def test_what_is_no_ratio_is_refused(num: list[float], den: list[float]) -> None:
    with pytest.raises(ValueError):
        ratio_interval(num, den)


def test_percentiles_need_no_distribution() -> None:
    rng, hits = np.random.default_rng(6), 0
    truth = float(stats.lognorm.ppf(0.9, 1.0))
    for _ in range(RUNS):
        found = quantile_interval(rng.lognormal(0.0, 1.0, 80), 0.9)
        assert found is not None
        hits += found.low <= truth <= found.high
    assert hits / RUNS >= 0.94  # at least what it says: the values are steps


@pytest.mark.parametrize(("values", "has_end"), [(367, False), (368, True)])
def test_a_tail_has_an_end_only_with_enough_values(values: int, has_end: bool) -> None:
    """0.99 to the power of 368 is the first below 2.5 %."""
    found = quantile_interval(list(range(values)), 0.99)
    assert found is not None
    assert np.isfinite(found.high) == has_end
    assert quantile_interval([], 0.5) is None


def test_the_median_of_few_values_is_bounded_by_them() -> None:
    """Of six values the median lies between the least and the greatest with 1 - 2 / 64."""
    found = quantile_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0], 0.5)
    assert found == Interval(1.0, 6.0, 3.5, 6)
