"""The attention windows of a model's layers as the shortest pattern."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trtspec.checkpoint.known import known
from trtspec.triton.windows import attention_windows, shortest

_KNOWN = known("meta-llama/Llama-3.2-1B-Instruct")
assert _KNOWN is not None
LLAMA = _KNOWN.facts


def windows(layers: tuple[int | None, ...], length: int) -> tuple[int, ...]:
    return attention_windows(replace(LLAMA, layer_windows=layers), length)


def test_every_family_has_its_pattern() -> None:
    assert windows((None,) * 16, 8192) == ()
    assert windows((4096,) * 32, 8192) == (4096,)  # Mistral 7B v0.1
    assert windows((4096, None) * 13, 8192) == (4096, 8192)  # Gemma 2
    assert windows(((512,) * 5 + (None,)) * 4 + (512, 512), 8192) == (512, 512, 512, 512, 512, 8192)  # Gemma 3 1B
    assert windows((None, None, 64, 64, 64), 128) == (128, 128, 64, 64, 64)  # Qwen2 with max_window_layers


def test_windows_that_are_never_reached_are_left_out() -> None:
    assert windows((4096, None), 4096) == ()
    assert shortest(replace(LLAMA, layer_windows=(4096, None)), 4096) is None
    assert shortest(replace(LLAMA, layer_windows=(4096, None)), 4097) == 4096


@given(st.lists(st.one_of(st.none(), st.integers(1, 300)), min_size=1, max_size=24), st.integers(1, 400))
def test_repeating_the_pattern_gives_every_layer_its_window(layers: list[int | None], length: int) -> None:
    found = windows(tuple(layers), length)
    wanted = [length if window is None else min(window, length) for window in layers]
    assert [found[i % len(found)] if found else length for i in range(len(layers))] == wanted
