"""Intervals cover the truth as often as they say, where rounds of one prompt resemble each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from trtspec.analysis.intervals import Interval, bootstrap_ratio

Sample = tuple[np.ndarray, np.ndarray]
RUNS = 400


def clustered(prompts: int, rng: np.random.Generator, alpha: float = 0.7, k: int = 4) -> Sample:
    """(accepted, tested) per prompt: each prompt has its own acceptance, drawn around alpha."""
    own = np.repeat(rng.beta(alpha * 8, (1 - alpha) * 8, prompts), rounds := rng.integers(4, 20, prompts))
    accepted = np.minimum(rng.geometric(np.maximum(1 - own, 1e-6)) - 1, k)
    prompt = np.repeat(np.arange(prompts), rounds)
    tested = accepted + (accepted < k)
    return np.bincount(prompt, accepted, prompts), np.bincount(prompt, tested, prompts)


TRUTH = float(np.divide(*(part.sum() for part in clustered(200_000, np.random.default_rng(1)))))


def coverage(method: Callable[[Sample, int], tuple[float, float]], prompts: int) -> float:
    rng = np.random.default_rng(prompts)
    ends = [method(clustered(prompts, rng), run) for run in range(RUNS)]
    return float(np.mean([low <= TRUTH <= high for low, high in ends]))


def ours(sample: Sample, seed: int) -> tuple[float, float]:
    found = bootstrap_ratio(*sample, seed=seed, resamples=600)
    assert found is not None
    return found.low, found.high


def independent_rounds(sample: Sample, seed: int) -> tuple[float, float]:
    """The wrong method: every tested token as an independent trial."""
    accepted, tested = (part.sum() for part in sample)
    p = accepted / tested
    half = 1.96 * np.sqrt(p * (1 - p) / tested)
    return p - half, p + half


def plain_percentiles(sample: Sample, seed: int) -> tuple[float, float]:
    """The plain bootstrap, which is too narrow with few prompts."""
    accepted, tested = sample
    n = len(accepted)
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), 600)
    low, high = np.quantile(times @ accepted / (times @ tested), [0.025, 0.975])
    return float(low), float(high)


@pytest.mark.parametrize("prompts", [6, 20, 60])
def test_coverage(prompts: int) -> None:
    # 400 runs at 95 % have a standard error of 1.1 %.
    assert 0.92 <= coverage(ours, prompts) <= 0.985


def test_the_simulation_tells_wrong_methods_apart() -> None:
    assert coverage(independent_rounds, 20) < 0.80
    assert coverage(plain_percentiles, 6) < 0.90


def test_more_prompts_make_it_narrower() -> None:
    rng = np.random.default_rng(0)
    widths = [np.mean([np.ptp(ours(clustered(n, rng), i)) for i in range(30)]) for n in (10, 40, 160)]
    assert widths[0] > 1.5 * widths[1] > 2 * widths[2]


def test_it_is_a_pure_function_of_its_arguments() -> None:
    sample = clustered(12, np.random.default_rng(3))
    assert bootstrap_ratio(*sample, seed=5) == bootstrap_ratio(*sample, seed=5)
    assert bootstrap_ratio(*sample, seed=5) != bootstrap_ratio(*sample, seed=6)


def test_the_point_is_the_ratio_of_sums_not_the_mean_of_ratios() -> None:
    found = bootstrap_ratio([1, 90], [10, 100])
    assert found is not None
    assert found.point == pytest.approx(91 / 110)
    assert found.low <= found.point <= found.high


def test_nothing_measured_has_no_interval() -> None:
    assert bootstrap_ratio([], []) is None
    assert bootstrap_ratio([0, 0], [0, 0]) is None


def test_prompts_that_say_nothing_are_not_counted() -> None:
    assert bootstrap_ratio([3, 0, 8], [5, 0, 9]) == bootstrap_ratio([3, 8], [5, 9])


def test_one_prompt_could_be_anything() -> None:
    assert bootstrap_ratio([7], [10]) == Interval(0.0, 1.0, 0.7, 1)
    assert bootstrap_ratio([7], [10], bounds=None) is None


def test_equal_prompts_are_not_certainty() -> None:
    """20 prompts that accepted all: Wilson gives 20 / (20 + 1.96²) as the lower end."""
    found = bootstrap_ratio([8] * 20, [8] * 20)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(20 / (20 + 1.959964**2), abs=1e-6), 1.0)


def test_a_gain_can_exceed_one_without_bounds() -> None:
    found = bootstrap_ratio([2.1, 1.9, 2.2, 2.0], [1, 1, 1, 1], bounds=None)
    assert found is not None
    assert 1.5 < found.low < 2.05 < found.high < 2.6


@pytest.mark.parametrize(("num", "den"), [([1], [1, 2]), ([1, 2], [1, -2]), ([3, 5], [1, 2])])
def test_what_is_no_ratio_is_refused(num: list[float], den: list[float]) -> None:
    with pytest.raises(ValueError):
        bootstrap_ratio(num, den)
