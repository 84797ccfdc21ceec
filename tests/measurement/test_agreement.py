"""Figures of two runs side by side, on logits that are written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from trtspec.backends.scoring import Scorer
from trtspec.measurement.agreement import agreement


class Said:
    """A scorer that says what it was given, text after text."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = [np.array(r, np.float32) for r in rows]
        self.vocab_size = self.rows[0].shape[-1]

    def logits(self, ids: Sequence[int], first: int) -> Any:
        return self.rows.pop(0)[first:]


def compared(one: Sequence[Any], other: Sequence[Any]) -> Any:
    texts = [tuple(range(len(rows))) for rows in one]
    return agreement(cast(Scorer, Said(one)), cast(Scorer, Said(other)), texts)


def test_equal_runs_agree_in_everything() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 7))
    found = compared([rows, rows[:2]], [rows, rows[:2]])
    assert (found.texts, found.positions, found.difference, found.kl_max, found.top1) == (2, 7, 0.0, 0.0, 1.0)


def test_figures_by_hand() -> None:
    found = compared([[[0.0, np.log(3)], [2.0, 0.0]]], [[[0.0, 0.0], [0.0, 0.5]]])
    assert found.difference == 2.0
    assert found.largest == 2.0
    assert found.relative == 1.0
    first = 0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5)
    assert found.kl_mean >= first / 2
    assert found.kl_max > found.kl_mean
    # [0, 0]: a tie goes to the first on both sides, so the first position differs, and so does the second.
    assert found.top1 == 0.0


def test_a_single_position_is_not_typical_and_two_of_a_hundred_are() -> None:
    one = np.ones((100, 3))
    for count, typical in ((1, 0.0), (2, 0.5)):
        other = one.copy()
        other[:count, 0] += 0.5
        found = compared([one], [other])
        assert (found.difference, found.typical) == (0.5, typical)


def test_what_is_not_finite_disagrees_entirely() -> None:
    found = compared([[[0.0, 1.0]]], [[[0.0, float("nan")]]])
    assert found.difference == float("inf")
    assert found.kl_max == float("inf")


def test_a_padded_head_is_compared_where_both_have_rows() -> None:
    assert compared([[[1.0, 2.0]]], [[[1.0, 2.0, 9.0]]]).difference == 0.0


@pytest.mark.parametrize("shift", [5.0, -300.0])
def test_a_constant_on_all_logits_changes_no_probability(shift: float) -> None:
    rows = np.random.default_rng(1).standard_normal((4, 6))
    found = compared([rows], [rows + shift])
    assert found.kl_max == pytest.approx(0.0, abs=1e-5)
    assert found.top1 == 1.0
