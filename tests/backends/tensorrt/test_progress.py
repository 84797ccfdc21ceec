"""Progress from what the builder prints: rising, tolerant, 100 only at its last line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtspec.backends.tensorrt.progress import Progress

LINES = [
    "[TensorRT-LLM] TensorRT-LLM version: 1.2.1",
    "[TRT-LLM] [I] Total time of constructing network from module object 2.79 seconds",
    "[TRT-LLM] [I] Total optimization profiles added: 1",
    "[TRT-LLM] [I] Total time to initialize the weights in network Unnamed Network 0: 00:00:00",
    "[TRT-LLM] [I] Build TensorRT engine Unnamed Network 0",
    "[TRT] [I] Engine generation completed in 35.9738 seconds.",
    "[TRT-LLM] [I] Total time of building Unnamed Network 0: 00:00:36",
    "[TRT-LLM] [I] Serializing engine to /e/rank0.engine...",
    "[TRT-LLM] [I] Engine serialized. Total time: 00:00:02",
    "[TRT-LLM] [I] Total time of building all engines: 00:00:41",
]


def percents(lines: list[str], ranks: int = 1) -> list[int]:
    progress = Progress(ranks)
    found = []
    for line in lines:
        progress.feed(line)
        found.append(progress.percent)
    return found


def test_it_rises_to_the_end() -> None:
    found = percents(LINES)
    assert found == sorted(found)
    assert found[-1] == 100
    assert found[-2] < 100
    assert len(set(found)) > 6


def test_ranks_built_in_turns_count_once_each() -> None:
    found = percents(LINES[1:-1] * 4 + LINES[-1:], ranks=4)
    assert found == sorted(found)
    assert found[len(LINES) - 3] <= 25
    assert found[-2] < 100
    assert found[-1] == 100


def test_a_loading_bar_moves_within_its_phase() -> None:
    progress = Progress()
    progress.feed("[TRT-LLM] [I] Loading weights from HF LLaMA...")
    begun = progress.percent
    assert progress.feed("Loading:  50%|#####     | 1/2 [00:14<00:00,  7.26s/it]")
    assert begun < progress.percent < 15
    assert not progress.feed("GPU 1234 (MiB) 50")


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from(LINES[:-1])), max_size=30), st.integers(1, 8))
def test_any_output_is_read(lines: list[str], ranks: int) -> None:
    found = percents(lines, ranks)
    assert found == sorted(found)
    assert all(0 <= each <= 100 for each in found)
