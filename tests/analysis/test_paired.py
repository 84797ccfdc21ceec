"""Differences of ratios on the same prompts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from trtspec.analysis.paired import independent_difference, paired_difference


def test_the_point_is_the_difference_of_the_ratios() -> None:
    found = paired_difference([(1, 2), (3, 4), (1, 2)], [(2, 2), (4, 4), (2, 2)])
    assert found is not None
    assert found.point == pytest.approx(1.0 - 5 / 8)
    assert found.low <= found.point <= found.high


def test_equal_sides_differ_by_nothing_however_prompts_differ() -> None:
    side = [(float(a), 10.0) for a in range(10)]
    found = paired_difference(side, side)
    assert found is not None
    assert (found.low, found.point, found.high) == (0.0, 0.0, 0.0)


def test_what_prompts_share_cancels() -> None:
    rng = np.random.default_rng(1)
    before = [(float(a), 100.0) for a in rng.integers(10, 90, 60)]
    after = [(a + 5.0, d) for a, d in before]
    found = paired_difference(before, after)
    assert found is not None
    assert found.high - found.low < 1e-9  # each prompt changed by exactly 0.05


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        hard = rng.uniform(0.3, 0.9, 40)
        before = [(float(rng.binomial(50, p)), 50.0) for p in hard]
        after = [(float(rng.binomial(50, p - 0.05)), 50.0) for p in hard]
        found = paired_difference(before, after)
        assert found is not None
        hits += found.low <= -0.05 <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def test_nothing_measured_and_too_few_prompts() -> None:
    assert paired_difference([(0, 0)], [(1, 1)]) is None
    found = paired_difference([(1, 2), (1, 2)], [(2, 2), (1, 2)])
    assert found is not None
    assert (found.low, found.high) == (-1.0, 1.0)
    with pytest.raises(ValueError):
        paired_difference([(1, 2)], [])


def test_prompts_that_differ_are_two_samples() -> None:
    """Where every prompt weighs the same it is Welch's interval of two means."""
    rng, hits = np.random.default_rng(3), 0
    for _ in range(400):
        before = [(float(rng.binomial(50, p)), 50.0) for p in rng.uniform(0.3, 0.9, 40)]
        after = [(float(rng.binomial(50, p)), 50.0) for p in rng.uniform(0.3, 0.8, 25)]
        found = independent_difference(before, after)
        assert found is not None
        hits += found.low <= -0.05 <= found.high
    assert 0.92 <= hits / 400 <= 0.98
    a, b = ([x / 50 for x, _ in side] for side in (before, after))
    welch = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(welch.low), pytest.approx(welch.high))
    assert found.n == 25


def test_two_samples_of_nothing_and_of_few() -> None:
    assert independent_difference([], [(1, 2)]) is None
    assert independent_difference([(0, 0)], [(1, 2)]) is None
    found = independent_difference([(1, 2), (2, 2)], [(1, 2), (1, 2), (2, 2)])
    assert found is not None
    assert (found.low, found.high) == (-1.0, 1.0)
