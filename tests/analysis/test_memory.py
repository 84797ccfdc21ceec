"""KV bytes, caches in both load orders, and the properties a split must have whatever the numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.test_shape import LLAMA_70B
from trtspec.analysis.memory import (
    GIB,
    Load,
    activation_bytes,
    blocks,
    fraction_for,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
    largest_batch,
    largest_length,
    layers_of,
    load_in_order,
    logits_bytes,
    reserve,
    split_evenly,
    step_tokens,
)

sizes = st.integers(1 << 20, 60 * GIB)
per_token = st.integers(256, 1 << 20)
memories = st.integers(8 * GIB, 200 * GIB)


def test_llama_3_70b_caches_320_kib_a_token() -> None:
    assert kv_bytes_per_token(LLAMA_70B, 2) == 320 * 1024
    assert kv_bytes_per_token(LLAMA_70B, 1, tensor=8) == 20 * 1024
    assert kv_bytes_per_token(LLAMA_70B, 1, tensor=16) == 20 * 1024, "a key-value head is copied, not split"
    assert kv_bytes_per_token(LLAMA_70B, 2, layers=layers_of(LLAMA_70B, 4, 0)) == 80 * 1024


def test_windowed_layers_keep_less_of_a_long_sequence() -> None:
    windowed = replace(LLAMA_70B, windows=(1024, None) * 40)
    assert kv_bytes_per_token(windowed, 2) == kv_bytes_per_token(LLAMA_70B, 2), "an upper bound"
    assert kv_bytes_of_sequence(windowed, 2, 4096) == 320 * 1024 * (1024 + 4096) / 2
    assert kv_bytes_of_sequence(windowed, 2, 512) == kv_bytes_of_sequence(LLAMA_70B, 2, 512)


def test_estimates_by_hand() -> None:
    # Per token: 4 · hidden, qkv of 64 + 2 · 8 heads, two MLP tensors; the last two in eighths.
    assert activation_bytes(LLAMA_70B, 100, 8) == 100 * 2 * (4 * 8192 + 10 * 128 + 2 * 3584)
    assert logits_bytes(1000, 4, 5) == 4 * 1000 * 4 * (21 + 6)
    assert step_tokens(32, 8) == 8192
    assert step_tokens(2048, 8) == 2048 * 9


def test_a_published_pair_on_one_gpu() -> None:
    """Qwen2.5 1.5B and 0.5B in one Triton: 0.45 of 16.25 GiB, then 0.25 of the 8.73 GiB that were left (a log)."""
    first = load_in_order(int(16.25 * GIB), [Load(0, 28672, 0.45)])[0]
    second = load_in_order(int(8.73 * GIB), [Load(0, 12288, 0.25)])[0]
    assert first.tokens == pytest.approx(273792, rel=0.001)
    assert second.tokens == pytest.approx(190656, rel=0.001)


def test_the_default_fraction_starves_whoever_loads_second() -> None:
    target, draft = Load(20 * GIB, 80 * 1024), Load(3 * GIB, 28 * 1024)
    first = load_in_order(80 * GIB, [target, draft])
    assert first[1].tokens < first[0].tokens / 5
    other = load_in_order(80 * GIB, [draft, target])
    assert other[1].free < 0, "the target's weights do not even load"
    assert other[1].tokens == 0


def test_max_tokens_and_fraction_the_smaller_wins() -> None:
    assert load_in_order(10 * GIB, [Load(0, 1 << 20, 0.5, 640)])[0].tokens == 640
    assert load_in_order(10 * GIB, [Load(0, 1 << 20, 0.5, 99999)])[0].tokens == 5120


@given(memories, sizes, sizes, per_token, per_token)
def test_a_split_is_safe_in_either_order(memory: int, a: int, b: int, kv_a: int, kv_b: int) -> None:
    loads = [Load(a, kv_a), Load(b, kv_b)]
    split = split_evenly(memory, loads)
    assert split.tokens % 32 == 0
    if split.tokens == 0:
        return
    assert split.left >= reserve(memory)
    settled = [
        replace(load, fraction=f, max_tokens=split.tokens) for load, f in zip(loads, split.fractions, strict=True)
    ]
    for order in ([0, 1], [1, 0]):
        pools = load_in_order(memory, [settled[i] for i in order])
        assert [pool.tokens for pool in pools] == [split.tokens] * 2, "the same caches whichever loads first"
        assert a + b + sum(pool.nbytes for pool in pools) <= memory - reserve(memory)


@given(memories, sizes, sizes, per_token, per_token, st.floats(0, 1), st.floats(0, 1))
def test_caches_never_exceed_the_memory(memory: int, a: int, b: int, kv_a: int, kv_b: int, f: float, g: float) -> None:
    loads = [Load(a, kv_a, f), Load(b, kv_b, g)]
    for order in (loads, loads[::-1]):
        pools, taken = load_in_order(memory, order), 0
        for load, pool in zip(order, pools, strict=True):
            taken += load.fixed + pool.nbytes
            assert pool.nbytes == 0 or taken <= memory


@given(memories, sizes, sizes, per_token, per_token, st.integers(0, 4 * GIB))
def test_less_memory_or_more_weights_never_give_more_tokens(
    memory: int, a: int, b: int, kv_a: int, kv_b: int, more: int
) -> None:
    base = split_evenly(memory, [Load(a, kv_a), Load(b, kv_b)]).tokens
    assert split_evenly(memory, [Load(a + more, kv_a), Load(b, kv_b)]).tokens <= base
    assert split_evenly(memory + more, [Load(a, kv_a), Load(b, kv_b)]).tokens >= base


@given(st.integers(0, 10**7), st.integers(1, 512), st.integers(1, 200_000))
def test_what_fits_fits_and_one_more_does_not(tokens: int, batch: int, length: int) -> None:
    most = largest_batch(tokens, length)
    assert most * blocks(length) <= tokens < (most + 1) * blocks(length)
    longest = largest_length(tokens, batch)
    assert batch * blocks(longest) <= tokens
    assert batch * blocks(longest + 1) > tokens


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_fraction_is_enough(cache: int, left: int) -> None:
    fraction = fraction_for(cache, left)
    assert 0 <= fraction <= 1
    if 0 < cache < 1000 * left:
        assert int(fraction * (cache + left)) >= cache
