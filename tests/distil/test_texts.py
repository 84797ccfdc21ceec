"""Shards and batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtspec.distil.texts import Batches, Text, read_shard, shard_path, write_shard
from trtspec.errors import BuildError, ModelFileError


def text(prompt: int, answer: int, first: int = 0, keep: int = 0) -> Text:
    ids = np.arange(first, first + prompt + answer, dtype=np.int32)
    if not keep:
        return Text(ids, prompt, answer + 1)
    top = np.arange(answer * keep, dtype=np.int32).reshape(answer, keep)
    return Text(ids, prompt, answer + 1, top, -top.astype(np.float16))


@pytest.mark.parametrize("keep", [0, 3])
def test_a_shard_is_read_as_it_was_written(keep: int, tmp_path: Path) -> None:
    texts = [text(3, 5, 0, keep), text(1, 1, 9, keep), text(7, 2, 4, keep)]
    path = shard_path(tmp_path / "deep", 3)
    write_shard(path, texts)
    assert [p.name for p in path.parent.iterdir()] == ["texts-000003.safetensors"]
    for one, other in zip(texts, read_shard(path), strict=True):
        assert (one.ids.tolist(), one.prompt, one.limit) == (other.ids.tolist(), other.prompt, other.limit)
        assert one.answer.tolist() == other.answer.tolist()
        if keep:
            assert np.array_equal(one.top_ids, other.top_ids)
            assert np.array_equal(one.top_logprobs, other.top_logprobs)
        else:
            assert other.top_ids is None


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    path = tmp_path / "texts-000000.safetensors"
    path.write_bytes(b"12345678 not a shard")
    with pytest.raises(ModelFileError, match="not a shard"):
        read_shard(path)


@settings(max_examples=50)
@given(count=st.integers(1, 70), rows=st.integers(1, 9), seed=st.integers(0, 5))
def test_every_epoch_holds_every_text_once_and_any_step_can_be_asked_for(count: int, rows: int, seed: int) -> None:
    texts = [text(1, 1 + i % 13, i) for i in range(count)]
    batches = Batches(texts, rows, seed)
    steps = [batches.batch(step) for step in range(2 * batches.per_epoch)]
    for epoch in (steps[: batches.per_epoch], steps[batches.per_epoch :]):
        assert sorted(t.ids[0] for batch in epoch for t in batch) == list(range(count))
    # A resumed run begins anywhere, with a fresh object.
    for step in (batches.per_epoch, 0, 2 * batches.per_epoch - 1):
        assert [t.ids[0] for t in Batches(texts, rows, seed).batch(step)] == [t.ids[0] for t in steps[step]]


def test_epochs_and_seeds_differ_in_order() -> None:
    texts = [text(1, 2, i) for i in range(64)]
    batches = Batches(texts, 4, 0)

    def order(seed: int, epoch: int) -> list[int]:
        found = Batches(texts, 4, seed)
        return [t.ids[0] for i in range(16) for t in found.batch(epoch * 16 + i)]

    assert batches.per_epoch == 16
    assert len({tuple(order(s, e)) for s in (0, 1) for e in (0, 1)}) == 4


def test_no_texts_is_an_error() -> None:
    with pytest.raises(BuildError, match="no texts"):
        Batches([], 4, 0)
