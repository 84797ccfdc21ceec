"""Differences of ratios on the same prompts."""

from __future__ import annotations

import numpy as np
import pytest

from trtspec.analysis.paired import paired_difference


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
    for trial in range(150):
        hard = rng.uniform(0.3, 0.9, 40)
        before = [(float(rng.binomial(50, p)), 50.0) for p in hard]
        after = [(float(rng.binomial(50, p - 0.05)), 50.0) for p in hard]
        found = paired_difference(before, after, seed=trial, resamples=500)
        assert found is not None
        hits += found.low <= -0.05 <= found.high
    assert 0.88 <= hits / 150 <= 0.99


def test_nothing_measured_and_too_few_prompts() -> None:
    assert paired_difference([(0, 0)], [(1, 1)]) is None
    found = paired_difference([(1, 2), (1, 2)], [(2, 2), (1, 2)])
    assert found is not None
    assert (found.low, found.high) == (-1.0, 1.0)
    with pytest.raises(ValueError):
        paired_difference([(1, 2)], [])
