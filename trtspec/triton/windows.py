"""Sliding windows: what `max_attention_window_size` must say, and what windows do to KV-cache reuse."""

from __future__ import annotations

from trtspec.checkpoint.facts import ModelFacts

REUSE = (
    "TensorRT-LLM's engine runtime keeps windowed layers in a cyclic cache and reuses no block of a sequence that is "
    "longer than the window"
)
SOURCES = "TensorRT-LLM cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp (isCyclic), pull requests 5722 and 6768"


def attention_windows(facts: ModelFacts, length: int) -> tuple[int, ...]:
    """One number for each layer of the shortest pattern that repeats over all layers; a full layer has `length`.

    `length`: the engine's max_seq_len, draft room included. Empty where no window is shorter than that: then the
    runtime's default means the same. TensorRT-LLM repeats a list that is shorter than the number of layers.
    """
    sizes = tuple(length if window is None else min(window, length) for window in facts.layer_windows)
    if all(size >= length for size in sizes):
        return ()
    return _pattern(sizes)


def shortest(facts: ModelFacts, length: int) -> int | None:
    """The smallest window in effect in sequences of `length` tokens; None without one."""
    windows = attention_windows(facts, length)
    return min(windows) if windows else None


def _pattern(sizes: tuple[int, ...]) -> tuple[int, ...]:
    for period in range(1, len(sizes) + 1):
        if all(size == sizes[i % period] for i, size in enumerate(sizes)):
            return sizes[:period]
    return sizes
