"""Which slot a request gets: its own conversation's, else the one unused for longest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trtspec.backends.reference.slots import COPY_FROM, SlotPool, common_prefix

WINDOW = 5
PROMPT = list(range(100, 140))


def filled(*sequences: list[int], spare: int = 0) -> SlotPool:
    """A pool whose slots 0, 1, ... were released in this order with these tokens."""
    pool = SlotPool(len(sequences) + spare, WINDOW)
    for slot, ids in zip(pool.slots, sequences, strict=False):
        slot.busy = True
        slot.given = len(PROMPT)
        pool.release(slot, list(ids))
    return pool


@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_common_prefix_is_the_longest(a: list[int], b: list[int]) -> None:
    expected = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(a, b) == expected


def test_a_conversation_returns_to_its_slot() -> None:
    pool = filled([1, 2, 3, 4, 5, 6], [7, 8, 9])
    lease = pool.acquire([1, 2, 3, 4, 5, 6, 7])
    assert lease is not None
    assert (lease.slot.number, lease.reused, lease.copy_from) == (0, 6, None)


def test_rejected_drafts_at_the_end_do_not_make_it_another_conversation() -> None:
    pool = filled([*PROMPT, 1, 2, 3, 4], [9], spare=1)
    lease = pool.acquire([*PROMPT, 1, 50, 51])
    assert lease is not None
    assert (lease.slot.number, lease.reused, lease.copy_from) == (0, len(PROMPT) + 1, None)


def test_the_last_token_is_always_computed() -> None:
    pool = filled([1, 2, 3, 4])
    lease = pool.acquire([1, 2, 3, 4])
    assert lease is not None
    assert lease.reused == 3


def test_a_short_difference_within_what_was_given_is_another_conversation() -> None:
    pool = SlotPool(2, WINDOW)
    first = pool.acquire([*PROMPT, 1])
    assert first is not None
    pool.release(first.slot, [*PROMPT, 1])
    second = pool.acquire([*PROMPT, 2])
    assert second is not None
    assert (second.slot.number, second.reused, second.copy_from) == (1, len(PROMPT), 0)


def test_a_shared_beginning_is_copied_and_its_owner_kept() -> None:
    """Two conversations under one system prompt: the second must not evict the first."""
    pool = filled([*PROMPT, *range(20)], spare=1)
    lease = pool.acquire([*PROMPT, 70, 71])
    assert lease is not None
    assert (lease.slot.number, lease.reused, lease.copy_from) == (1, len(PROMPT), 0)
    assert pool.slots[0].ids == [*PROMPT, *range(20)]


def test_a_running_request_may_be_copied_from() -> None:
    pool = filled(PROMPT, spare=1)
    pool.slots[0].busy = True
    lease = pool.acquire([*PROMPT, 70])
    assert lease is not None
    assert (lease.slot.number, lease.reused, lease.copy_from) == (1, len(PROMPT), 0)


def test_short_shared_beginnings_are_recomputed() -> None:
    shared = PROMPT[: COPY_FROM - 1]
    pool = filled([*shared, *range(30)], spare=1)
    lease = pool.acquire([*shared, 70])
    assert lease is not None
    assert (lease.slot.number, lease.reused, lease.copy_from) == (1, 0, None)


def test_the_least_recently_used_gives_way() -> None:
    pool = filled([1] * 30, [2] * 30, [3] * 30)
    first = pool.acquire([1] * 31)  # touches slot 0, so slot 1 is the oldest now
    assert first is not None
    pool.release(first.slot, [1] * 31)
    lease = pool.acquire([9] * 10)
    assert lease is not None
    assert (lease.slot.number, lease.reused) == (1, 0)


def test_empty_slots_go_first() -> None:
    lease = filled([1] * 30, spare=1).acquire([9] * 10)
    assert lease is not None
    assert lease.slot.number == 1


def test_none_when_all_are_busy() -> None:
    pool = SlotPool(1, WINDOW)
    assert pool.acquire([1, 2]) is not None
    assert pool.acquire([1, 2]) is None


def test_eight_stateless_conversations_keep_their_cache() -> None:
    """Sixteen slots, eight conversations called in turn, newcomers in between: nobody loses what it had."""
    pool = SlotPool(16, WINDOW)
    texts = [[*PROMPT, n] for n in range(8)]
    for step in range(20):
        for n, text in enumerate(texts):
            lease = pool.acquire(text)
            assert lease is not None
            if step:
                assert lease.reused == len(text) - 1, f"conversation {n} lost its cache at step {step}"
            pool.release(lease.slot, list(text))
            text.append(step)
        newcomer = pool.acquire([1000 + step] * 20)
        assert newcomer is not None
        pool.release(newcomer.slot, [1000 + step] * 20)


@given(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.booleans()), max_size=30))
def test_a_lease_never_promises_more_than_is_there(calls: list[tuple[list[int], bool]]) -> None:
    pool = SlotPool(3, WINDOW)
    held: list[tuple[object, list[int]]] = []
    for ids, finish in calls:
        before = {slot.number: list(slot.ids) for slot in pool.slots}
        lease = pool.acquire(ids)
        if lease is None:
            assert len(held) == 3
        else:
            source = lease.slot.number if lease.copy_from is None else lease.copy_from
            assert before[source][: lease.reused] == ids[: lease.reused]
            assert lease.reused < len(ids)
            held.append((lease.slot, ids))
        if held and (finish or lease is None):
            slot, done = held.pop(0)
            pool.release(slot, done)  # type: ignore[arg-type]


def test_forget_empties_idle_slots_only() -> None:
    pool = filled([1, 2], [3, 4])
    pool.slots[1].busy = True
    pool.forget()
    assert [slot.ids for slot in pool.slots] == [[], [3, 4]]
