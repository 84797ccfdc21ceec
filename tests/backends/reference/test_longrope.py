"""Sequences that grow past longrope's boundary: each token's logits are those of the sequence that ends with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.families import (  # noqa: E402
    IDS,
    ORIGINAL,
    all_logits,
    engine_of,
    growing,
    longrope,
    oracle,
)
from trtspec.backends.reference import Request, open_engine, open_pair  # noqa: E402
from trtspec.backends.reference.core import Core  # noqa: E402
from trtspec.backends.reference.longrope import enter, past, room, settle  # noqa: E402
from trtspec.backends.reference.model import Feed  # noqa: E402
from trtspec.backends.reference.sequence import Running  # noqa: E402
from trtspec.backends.reference.slots import Slot, SlotPool  # noqa: E402

pytestmark = pytest.mark.torch
NEW = 24
"""From a prompt of 14 tokens to 38: the boundary of 24 is crossed."""


@pytest.fixture(scope="module")
def model() -> Any:
    return longrope()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Path:
    return engine_of(model, tmp_path_factory.mktemp("longrope"))


@pytest.fixture(scope="module")
def answer(model: Any) -> tuple[int, ...]:
    """Greedy, by a full pass for every token: what transformers' generate gives, which drops its cache on the way."""
    ids = list(IDS[:14])
    for _ in range(NEW):
        ids.append(int(all_logits(model, tuple(ids))[-1].argmax()))
    return tuple(ids[14:])


def test_both_sets_equal_transformers(folder: Path, model: Any) -> None:
    core = Core(folder, threads=1)
    assert core.boundary == ORIGINAL
    expected, long = growing(model, IDS), all_logits(model, IDS)
    assert np.abs(long[:ORIGINAL] - expected[:ORIGINAL]).max() > 1, "the sets differ"
    with torch.inference_mode():
        short = core.step([Feed(0, 0, IDS[:ORIGINAL], ORIGINAL)]).copy()
        core.pool.slots[1].long = True
        whole = core.step([Feed(1, 0, IDS, 40)]).copy()
    np.testing.assert_allclose(short, expected[:ORIGINAL], rtol=0, atol=1e-4)
    np.testing.assert_allclose(whole, long, rtol=0, atol=1e-4)


def test_a_growing_answer_is_transformers_own(folder: Path, answer: tuple[int, ...]) -> None:
    with open_engine(folder, threads=1) as engine:
        for _ in range(2):  # the second time nothing of the long sequence may be reused
            result = engine.generate(Request("r", IDS[:14], NEW))
            assert result.ids == answer
        assert engine.stats().reused == 0


def test_context_and_generated_logits_on_the_far_side(folder: Path, model: Any) -> None:
    with open_engine(folder, threads=1) as engine:
        result = engine.generate(Request("r", IDS[:30], 3, return_context_logits=True, return_generation_logits=True))
    assert result.context_logits is not None
    assert result.logits is not None
    expected = all_logits(model, (*IDS[:30], *result.ids))
    np.testing.assert_allclose(result.context_logits, expected[:30], rtol=0, atol=1e-4)
    np.testing.assert_allclose(result.logits, expected[29:-1], rtol=0, atol=1e-4)


def test_a_stateless_loop_of_verify_calls_gives_the_same(folder: Path, answer: tuple[int, ...]) -> None:
    made: tuple[int, ...] = ()
    judged = []
    with open_engine(folder, threads=1) as engine:
        while len(made) < NEW:
            right = answer[len(made) :]
            drafts = (*right[:3], 0)[: max(0, min(4, NEW - len(made) - 1))]
            result = engine.generate(Request("v", IDS[:14] + made, len(drafts) + 1, draft_ids=drafts))
            judged.append(result.drafted)
            made += result.ids
    assert made == answer
    assert min(judged[:-1]) < 4, "the step at the boundary judged fewer drafts"


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("other", ["self", "longrope", "llama"])
def test_speculation_changes_no_token(
    folder: Path, tmp_path: Path, answer: tuple[int, ...], k: int, other: str
) -> None:
    draft = folder
    if other != "self":
        draft = engine_of(longrope(1) if other == "longrope" else oracle("llama", 1), tmp_path)
    with open_pair(folder, draft, draft_len=k, threads=1) as pair:
        assert pair.generate(Request("r", IDS[:14], NEW)).ids == answer
        if other == "self":
            assert (pair.histogram.alpha() or 0) > 0.9


def test_sides() -> None:
    assert not past(None, 10**9)
    assert not past(24, 24)
    assert past(24, 25)
    assert (room(24, 20), room(24, 24), room(24, 25) > 1000, room(None, 5) > 1000) == (4, 0, True, True)


def test_entering_the_far_side_voids_the_slot_once() -> None:
    slot = Slot(0, ids=[1, 2])
    assert not enter(slot, 24, 24)
    assert enter(slot, 24, 25)
    assert (slot.long, slot.ids) == (True, [])
    assert not enter(slot, 24, 26)


def test_settling_a_request() -> None:
    running = Running(Request("r", tuple(range(22)), 9, draft_ids=(1, 2, 3)), lambda update: None, 67)
    running.slot, running.cached = Slot(0), 21
    settle(running, 24)
    assert (running.drafts, running.cached) == ([1, 2], 21)
    running.ids += [1, 2, 3]
    settle(running, 24)
    assert running.cached == 0
    assert running.slot.long


def test_slots_of_the_other_side_are_not_reused() -> None:
    pool = SlotPool(2, draft_window=5)
    ids = list(range(20))
    lease = pool.acquire(ids)
    assert lease is not None
    pool.release(lease.slot, ids)
    other = pool.acquire(ids, long=True)
    assert other is not None
    assert (other.reused, other.copy_from, other.slot.long) == (0, None, True)
    pool.release(other.slot, ids)
    again = pool.acquire([*ids, 20], long=True)
    assert again is not None
    assert again.reused == 20
