"""The draft length that a request finds by itself: near the best fixed one, whatever the acceptance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.triton.models.tensorrt_llm_bls.adaptive import Adaptive

COST = 0.1
ROUNDS = 4000


def _played(alpha: float, choose: object, seed: int = 1) -> tuple[float, list[int]]:
    """Tokens per price over many rounds, and the lengths; a draft step costs a tenth of a target step."""
    generator, adaptive = np.random.default_rng(seed), Adaptive(8)
    tokens, price, lengths = 0, 0.0, []
    for _ in range(ROUNDS):
        length = choose if isinstance(choose, int) else adaptive.limit()
        missed = np.flatnonzero(generator.random(length) >= alpha)
        accepted = int(missed[0]) if missed.size else length
        adaptive.saw(length, accepted)
        tokens, price = tokens + accepted + 1, price + 1 + COST * length
        lengths.append(length)
    return tokens / price, lengths


@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.97])
def test_it_is_nearly_as_good_as_the_best_fixed_length(alpha: float) -> None:
    best = max(_played(alpha, length)[0] for length in range(1, 9))
    assert _played(alpha, None)[0] > 0.97 * best


def test_it_begins_with_the_limit_and_finds_the_extremes() -> None:
    adaptive = Adaptive(6)
    assert adaptive.limit() == 6
    for _ in range(30):
        adaptive.saw(adaptive.limit(), 0)
    assert adaptive.limit() == 1
    for _ in range(60):
        adaptive.saw(1, 1)
    assert adaptive.limit() == 6, "one token at a time shows that acceptance is back"


def test_it_follows_a_change_within_a_few_rounds() -> None:
    adaptive = Adaptive(8)
    for _ in range(50):
        adaptive.saw(8, 8)
    lengths = []
    while not lengths or lengths[-1] > 1:
        adaptive.saw(adaptive.limit(), 0)
        lengths.append(adaptive.limit())
    assert len(lengths) == 13
    assert lengths == sorted(lengths, reverse=True)


def test_rounds_without_drafts_teach_nothing() -> None:
    adaptive = Adaptive(4)
    adaptive.saw(4, 2)
    before = adaptive.limit()
    for _ in range(20):
        adaptive.saw(0, 0)
    assert adaptive.limit() == before


@given(most=st.integers(1, 16), seen=st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), max_size=60))
def test_lengths_are_within_bounds_and_depend_on_nothing_else(most: int, seen: list[tuple[int, int]]) -> None:
    one, other = Adaptive(most), Adaptive(most)
    for drafted, accepted in seen:
        one.saw(drafted, min(accepted, drafted))
        other.saw(drafted, min(accepted, drafted))
        assert 1 <= one.limit() <= most
    assert one.limit() == other.limit()
