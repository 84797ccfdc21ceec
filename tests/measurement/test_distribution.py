"""The distribution test: accepts what is drawn rightly, rejects wrong acceptance rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.measurement.fake import ALPHABET, END, FakeClient, hashed
from trtspec.measurement.distribution import (
    ChiSquare,
    chi_square,
    compare_texts,
    drawn_texts,
    exact_texts,
    joint,
    probabilities,
)
from trtspec.triton.generation import Array, GenerateRequest, Generation

N = 4000


@lru_cache
def target(path: tuple[int, ...]) -> np.ndarray:
    """The next of four tokens, dependent on all before; token 3 ends."""
    rng = np.random.default_rng([len(path), *path])
    return rng.dirichlet([2.0, 1.0, 1.0, 0.3])


@lru_cache
def draft(path: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng([99, len(path), *path])
    return rng.dirichlet([1.0, 1.0, 1.0, 0.5])


def speculate(rng: np.random.Generator, *, broken: bool, depth: int = 3) -> tuple[int, ...]:
    """Rejection sampling (Leviathan et al. 2023) of single drafts; `broken` draws the rest from p, not from (p-q)+."""
    path: tuple[int, ...] = ()
    while len(path) < depth and 3 not in path:
        p, q = target(path), draft(path)
        token = int(rng.choice(4, p=q))
        if rng.random() >= min(1.0, p[token] / q[token]):
            left = p if broken else np.maximum(p - q, 0)
            token = int(rng.choice(4, p=left / left.sum()))
        path = (*path, token)
    return path


def drawn(broken: bool, seed: int) -> Counter[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return Counter(speculate(rng, broken=broken) for _ in range(N))


def test_the_joint_distribution_sums_to_one_and_ends_at_the_end() -> None:
    exact = joint(target, {3})
    assert sum(exact.values()) == pytest.approx(1.0)
    assert all(len(path) == 3 or path[-1] == 3 for path in exact)
    assert exact[0, 1, 2] == pytest.approx(target(())[0] * target((0,))[1] * target((0, 1))[2])


def test_exact_sampling_is_accepted_and_a_wrong_rest_distribution_is_not() -> None:
    exact = joint(target, {3})
    good, bad = (chi_square(drawn(broken, 1), exact, N) for broken in (False, True))
    assert good.p > 0.001
    assert bad.p < 1e-6
    assert good.cells == good.dof + 1


def test_p_values_are_uniform_under_the_truth() -> None:
    exact = joint(target, {3})
    paths, weights = list(exact), np.array(list(exact.values()))
    rng = np.random.default_rng(5)
    ps = []
    for _ in range(200):
        counts = dict(zip(paths, map(int, rng.multinomial(N, weights / weights.sum())), strict=True))
        ps.append(chi_square(counts, exact, N).p)
    assert stats.kstest(ps, "uniform").pvalue > 0.001


def test_it_is_scipys_statistic_where_nothing_is_pooled() -> None:
    counts, exact = {(0,): 18, (1,): 55, (2,): 27}, {(0,): 0.2, (1,): 0.5, (2,): 0.3}
    found = chi_square(counts, exact, 100)
    wanted = stats.chisquare([18, 55, 27], [20, 50, 30])
    assert (found.statistic, found.p) == (pytest.approx(wanted.statistic), pytest.approx(wanted.pvalue))
    assert (found.dof, found.cells, found.pooled) == (2, 3, 0)


def test_rare_cells_are_pooled_with_what_is_not_named() -> None:
    counts = {(0,): 60, (1,): 34, (2,): 2, (3,): 1, (7,): 3}
    found = chi_square(counts, {(0,): 0.6, (1,): 0.33, (2,): 0.03, (3,): 0.02}, 100)
    wanted = stats.chisquare([60, 34, 6], [60, 33, 7])
    assert found.statistic == pytest.approx(wanted.statistic)
    assert (found.cells, found.pooled) == (3, 2)


def test_a_pool_that_is_itself_rare_takes_the_next_cell() -> None:
    found = chi_square({(0,): 90, (1,): 8, (2,): 2}, {(0,): 0.9, (1,): 0.08, (2,): 0.02}, 100)
    assert (found.cells, found.pooled, found.dof) == (2, 2, 1)


@pytest.mark.parametrize("exact", [{(0,): 1.0, (1,): 0.0}, {(0,): 1.0}])
def test_what_cannot_be_drawn_and_was(exact: dict[tuple[int, ...], float]) -> None:
    found = chi_square({(0,): 99, (1,): 1}, exact, 100)
    assert (found.p, found.statistic) == (0.0, float("inf"))
    assert found.conclusive


def test_one_cell_tests_nothing_and_says_so() -> None:
    found = chi_square({(0,): 100}, {(0,): 1.0}, 100)
    assert found == ChiSquare(0.0, 0, 1.0, 1, 0)
    assert not found.conclusive


@pytest.mark.parametrize(
    ("counts", "exact", "n"),
    [({(0,): 3}, {(0,): 1.0}, 4), ({(0,): 3}, {(0,): 0.7, (1,): 0.7}, 3), ({(0,): -1, (1,): 2}, {(0,): 1.0}, 1)],
)
def test_what_is_no_sample_is_refused(
    counts: dict[tuple[int, ...], int], exact: dict[tuple[int, ...], float], n: int
) -> None:
    with pytest.raises(ValueError):
        chi_square(counts, exact, n)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12), st.integers(0, 2**32))
def test_no_cell_expects_fewer_than_five(counts: list[int], seed: int) -> None:
    n = sum(counts) or 1
    counts = counts if sum(counts) else [1, *counts[1:]]
    exact = np.random.default_rng(seed).dirichlet(np.ones(len(counts) + 1))[:-1]
    found = chi_square({(i,): c for i, c in enumerate(counts)}, {(i,): float(p) for i, p in enumerate(exact)}, n)
    assert 0.0 <= found.p <= 1.0
    assert found.cells <= max(1, n // 5)
    assert found.dof == max(0, found.cells - 1)


def test_filters_are_applied_in_the_order_of_the_runtime() -> None:
    logits = np.log([0.5, 0.2, 0.2, 0.1])
    np.testing.assert_allclose(probabilities(logits, 1.0), [0.5, 0.2, 0.2, 0.1])
    np.testing.assert_allclose(probabilities(logits, 1.0, top_k=2), [5 / 7, 2 / 7, 0, 0])
    np.testing.assert_allclose(probabilities(logits, 1.0, top_p=0.6), [5 / 7, 2 / 7, 0, 0])
    np.testing.assert_allclose(probabilities(logits, 1.0, top_k=2, top_p=0.7), [1, 0, 0, 0])
    np.testing.assert_allclose(probabilities(logits, 0.5), np.array([25, 4, 4, 1]) / 34)


@lru_cache(maxsize=4096)
def soft_logits(ids: tuple[int, ...]) -> Array:
    return np.array([(hashed(ids, str(i)) % 400) / 60 for i in range(END + 1)], np.float32)


@dataclass
class Sampling(FakeClient):
    """A server that samples; `temperature` overrides what it is asked for."""

    temperature: float | None = None

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        rng, ids = np.random.default_rng(request.seed), self.tokens(request.prompt)
        new: list[int] = []
        while len(new) < request.max_tokens and END not in new:
            weights = probabilities(
                np.asarray(soft_logits((*ids, *new)), np.float64),
                self.temperature or request.temperature,
                request.top_k or 0,
            )
            new.append(int(rng.choice(END + 1, p=weights)))
        shown = tuple(token for token in new if token != END)
        return self._generation(request, shown, END in new)


@pytest.mark.parametrize(("served", "agrees"), [(None, True), (1.4, False)])
def test_the_driver_tells_another_temperature_from_the_one_asked_for(served: float | None, agrees: bool) -> None:
    client = Sampling(logits=soft_logits, temperature=served)
    asked = [
        GenerateRequest(prompt="import os", max_tokens=2, temperature=0.8, top_k=5, seed=seed) for seed in range(1500)
    ]
    exact = exact_texts(client, asked[0], {END}, floor=5 / len(asked), tokens=2)
    assert sum(exact.values()) > 0.9
    assert all(set(text) <= set(ALPHABET) for text in exact)
    found = compare_texts(drawn_texts(client, "tensorrt_llm_bls", asked), exact)
    assert found.conclusive
    assert (found.p > 0.001) is agrees
