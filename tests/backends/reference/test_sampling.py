"""Filters against plain definitions, draws against their distribution, rules against hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from trtspec.backends.reference.request import Request, Sampling
from trtspec.backends.reference.sampling import (
    ACCEPT,
    RESIDUAL,
    TOKEN,
    Rules,
    draw,
    fresh_seed,
    log_probability,
    probabilities,
    uniform,
)

rows = hnp.arrays(np.float32, st.integers(2, 40), elements=st.floats(-20, 20, width=32))
ROW = np.array([1.0, 3.0, 2.0, 0.0, 2.0], dtype=np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x.astype(np.float64) - x.max())
    return weights / weights.sum()


@given(rows, st.floats(0.1, 5))
def test_without_filters_it_is_the_softmax(row: np.ndarray, temperature: float) -> None:
    got = probabilities(row, Sampling(temperature))
    np.testing.assert_allclose(got, softmax(row.astype(np.float64) / temperature), rtol=1e-9, atol=1e-12)


@given(rows, st.integers(1, 50))
def test_top_k_keeps_the_k_best(row: np.ndarray, k: int) -> None:
    got = probabilities(row, Sampling(top_k=k))
    kept = np.flatnonzero(got)
    assert len(kept) == (1 if k == 1 else min(k, len(row)))
    assert row[kept].min() >= np.sort(row)[::-1][: len(kept)].min()
    if k > 1:
        np.testing.assert_allclose(got[kept], softmax(row[kept]), rtol=1e-9)


@given(rows, st.floats(0.01, 0.99))
def test_top_p_keeps_the_smallest_set_that_reaches_p(row: np.ndarray, top_p: float) -> None:
    full = softmax(row)
    kept = np.flatnonzero(probabilities(row, Sampling(top_p=top_p)))
    assert full[kept].sum() >= top_p - 1e-9
    if len(kept) > 1:  # without its least likely member the set falls short
        assert full[kept].sum() - full[kept].min() < top_p + 1e-9


@pytest.mark.parametrize("sampling", [Sampling(top_k=1), Sampling(temperature=0.0), Sampling(temperature=0.0, top_k=9)])
def test_greedy_is_one_hot(sampling: Sampling) -> None:
    assert sampling.greedy
    np.testing.assert_array_equal(probabilities(ROW, sampling), [0, 1, 0, 0, 0])


@pytest.mark.parametrize("top_p", [0.0, 1.0, -1.0, 2.0])
def test_top_p_outside_its_range_is_off(top_p: float) -> None:
    np.testing.assert_array_equal(probabilities(ROW, Sampling(top_p=top_p)), probabilities(ROW, Sampling()))


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.sampled_from([TOKEN, ACCEPT, RESIDUAL]))
def test_uniform_is_a_pure_function_in_its_range(seed: int, position: int, purpose: int) -> None:
    u = uniform(seed, position, purpose)
    assert 0.0 <= u < 1.0
    assert u == uniform(seed, position, purpose)


@pytest.mark.parametrize("vary", ["seed", "position", "purpose"])
def test_uniform_is_uniform_and_independent_along_each_argument(vary: str) -> None:
    n = 3000
    calls = {
        "seed": [uniform(s, 7, TOKEN) for s in range(n)],
        "position": [uniform(7, p, TOKEN) for p in range(n)],
        "purpose": [uniform(s, 3, purpose) for s in range(n // 3) for purpose in (TOKEN, ACCEPT, RESIDUAL)],
    }[vary]
    assert stats.kstest(calls, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(calls[:-1], calls[1:])[0, 1]) < 4 / np.sqrt(n)


def test_fresh_seeds_differ() -> None:
    assert len({fresh_seed() for _ in range(20)}) == 20


def test_draws_follow_the_distribution() -> None:
    weights = probabilities(ROW, Sampling())
    counts = np.bincount([draw(weights, uniform(5, i, TOKEN)) for i in range(20000)], minlength=5)
    assert stats.chisquare(counts, weights * 20000).pvalue > 1e-3


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1)), st.floats(0, 1, exclude_max=True))
def test_draw_never_gives_an_impossible_token(weights: np.ndarray, u: float) -> None:
    weights[len(weights) // 2] += 0.1
    assert weights[draw(weights, u)] > 0


def test_draw_at_the_edges() -> None:
    weights = np.array([0.0, 0.5, 0.0, 0.5, 0.0])
    assert draw(weights, 0.0) == 1
    assert draw(weights, np.nextafter(1.0, 0)) == 3
    assert draw(weights, 0.5) == 3


def rules(**changes: object) -> Rules:
    return Rules(Request("r", (0,), 4, **changes), 5)  # type: ignore[arg-type]


def test_no_rule_applies_to_a_plain_request() -> None:
    assert not rules(end_ids=frozenset({1})).applies(0)


def test_end_ids_are_barred_until_min_tokens() -> None:
    bar = rules(end_ids=frozenset({1, 4}), min_tokens=2)
    assert [bar.applies(n) for n in range(4)] == [True, True, False, False]
    out = bar.apply(ROW, [0], 1)
    assert np.isneginf(out[[1, 4]]).all()
    assert out[2] == ROW[2]
    assert ROW[1] == 3.0, "the engine's own row must not change"


def test_bad_words_bar_their_last_token_where_they_would_complete() -> None:
    bar = rules(bad_words=((3,), (1, 2), (0, 1, 4)))
    out = bar.apply(ROW, [0, 1], 0)
    assert np.isneginf(out).tolist() == [False, False, True, True, True]
    assert np.isneginf(bar.apply(ROW, [1, 0], 0)).tolist() == [False, False, False, True, False]


def test_a_bias_is_added_before_all_other_rules() -> None:
    bias = np.array([3.0, 0.0, 0.0, -3.0], dtype=np.float32)
    row = np.array([-1.0, 2.0, 0.5, 1.0], dtype=np.float32)
    plain, both = rules(embedding_bias=bias), rules(embedding_bias=bias, repetition_penalty=2.0, bad_words=((1,),))
    assert plain.applies(0)
    np.testing.assert_array_equal(plain.apply(row, [1], 0), row + bias)
    # 2 = -1 + 3 is positive now, so that the penalty divides it.
    np.testing.assert_array_equal(both.apply(row, [0], 0), [1.0, -np.inf, 0.5, -2.0])
    np.testing.assert_array_equal(row, [-1.0, 2.0, 0.5, 1.0])


def test_penalties_count_the_whole_sequence() -> None:
    row = np.array([2.0, -2.0, 1.0, 0.5, 0.0], dtype=np.float32)
    out = rules(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5).apply(row, [0, 1, 1], 0)
    np.testing.assert_allclose(out, [2 / 2 - 0.25 - 0.5, -2 * 2 - 0.25 - 1.0, 1.0, 0.5, 0.0])


def test_presence_and_frequency_subtract_after_the_temperature() -> None:
    row = np.array([2.0, -2.0, 1.0, 0.5, 0.0], dtype=np.float32)
    hot = Sampling(temperature=4.0)
    out = rules(repetition_penalty=2.0, presence_penalty=0.25, sampling=hot).apply(row, [0], 0)
    np.testing.assert_allclose(out / 4.0, [2 / 4 / 2 - 0.25, -2 / 4, 1 / 4, 0.5 / 4, 0.0])


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.data())
def test_penalties_do_not_depend_on_what_was_asked_before(ids: list[int], data: st.DataObject) -> None:
    used = rules(frequency_penalty=0.5)
    for _ in range(3):
        part = ids[: data.draw(st.integers(1, len(ids)))]
        np.testing.assert_array_equal(used.apply(ROW, part, 0), rules(frequency_penalty=0.5).apply(ROW, part, 0))


@pytest.mark.parametrize(
    "change",
    [{"repetition_penalty": 1e-38}, {"repetition_penalty": 3e38}, {"presence_penalty": -3e38},
     {"frequency_penalty": -3e38}, {"repetition_penalty": 1e-38, "presence_penalty": 3e38, "frequency_penalty": -3e38}],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_penalties_beyond_any_measure_leave_a_distribution(change: dict[str, float]) -> None:
    """They were infinite logits before, and the draw took the vocabulary's last token."""
    row = rules(**change).apply(np.array([1.0, 2.0, -3.0, 0.5, 4.0], dtype=np.float32), [0, 1, 1, 2], 0)
    assert np.isfinite(row).all()
    weights = probabilities(row, Sampling(temperature=0.7))
    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1.0)


def test_log_probability_is_of_the_models_own_distribution() -> None:
    assert log_probability(ROW, 2) == pytest.approx(np.log(softmax(ROW)[2]), rel=1e-6)
