"""Looking while measuring: the published boundaries, and no more errors than one look makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics import false_passes
from trtspec.analysis.intervals import Interval
from trtspec.analysis.sequential import Looks, critical, drop_verdict, side


@pytest.mark.parametrize(
    ("fractions", "published"),
    [
        # Jennison and Turnbull 2000 and the program of Reboussin et al. 2000: Lan-DeMets, O'Brien-Fleming type, 5 %.
        ((0.2, 0.4, 0.6, 0.8, 1.0), (4.8769, 3.3569, 2.6803, 2.2898, 2.0310)),
        ((0.5, 1.0), (2.9626, 1.9686)),
        ((1.0,), (1.9600,)),
    ],
)
def test_the_published_boundaries(fractions: tuple[float, ...], published: tuple[float, ...]) -> None:
    assert critical(fractions, 0.05) == pytest.approx(published, abs=2e-3)


@pytest.mark.parametrize("fractions", [(0.25, 0.5, 0.75, 1.0), (0.3, 0.35, 0.9, 1.0)])
def test_a_walk_leaves_its_bounds_in_five_of_a_hundred(fractions: tuple[float, ...]) -> None:
    rng = np.random.default_rng(1)
    steps = rng.normal(size=(200_000, len(fractions))) * np.sqrt(np.diff([0.0, *fractions]))
    z = np.abs(steps.cumsum(axis=1)) / np.sqrt(fractions)
    assert (z > critical(fractions, 0.05)).any(axis=1).mean() == pytest.approx(0.05, abs=0.003)


def test_one_look_at_the_end_costs_nothing() -> None:
    assert Looks(100, (100,)).level() == 0.95
    assert Looks(100, ()).level() == 0.95


def test_an_early_look_is_wide_and_the_last_one_hardly_wider_than_one_alone() -> None:
    levels = [Looks(100, tuple(range(25, end + 1, 25))).level() for end in (25, 50, 75, 100)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > 0.9999
    assert 0.95 < levels[-1] < 0.957


def test_when_the_time_is_up_all_may_be_spent() -> None:
    early = Looks(100, (25, 50)).level()
    assert 0.95 < Looks(100, (25, 50), final=True).level() < 0.951 < early


@pytest.mark.parametrize(("budget", "at"), [(0, ()), (10, (0,)), (10, (5, 4))])
def test_what_are_no_looks(budget: int, at: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Looks(budget, at)


def test_looking_with_spending_releases_no_more_than_one_look_would() -> None:
    """α is exactly the floor: each release is an error, 2.5 % are allowed."""
    assert false_passes(400, 1, naive=False) <= 0.045
    assert false_passes(400, 1, naive=True) > 0.06


def test_sides() -> None:
    found = Interval(0.6, 0.7, 0.65, 9)
    assert [side(found, limit) for limit in (0.6, 0.65, 0.7, 0.71)] == ["above", "between", "between", "below"]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.01, 0.04, "pass"),
        (0.01, 0.04, "pass"),
        (0.01, 0.06, "fail"),
        (-0.01, 0.06, "undecided"),
        (0.0, 0.05, "undecided"),
    ],
)
def test_drops(low: float, high: float, verdict: str) -> None:
    assert drop_verdict(Interval(low, high, (low + high) / 2, 50), 0.05) == verdict


@given(st.floats(-0.5, 0.5), st.floats(0, 0.3), st.floats(0, 0.4), st.floats(0.001, 0.3))
def test_a_larger_drop_never_turns_fail_into_pass(point: float, half: float, more: float, tolerance: float) -> None:

    before, after = (drop_verdict(Interval(p - half, p + half, p, 9), tolerance) for p in (point, point + more))
    if before == "fail":
        assert after == "fail"
    if after == "pass":
        assert before == "pass"
