"""Which cached sequence a new request continues, and which one gives way.

A slot outlives its request: what it holds is reused by the next request that begins with the same tokens, as every call
of a stateless speculative loop does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

COPY_FROM = 16
"""Shared beginnings shorter than this are recomputed, not copied from a slot that must keep its own."""


@dataclass
class Slot:
    """One cached sequence."""

    number: int
    ids: list[int] = field(default_factory=list)
    """tokens whose keys and values stand in the cache"""
    given: int = 0
    """how many of them the last request brought; the rest was generated"""
    busy: bool = False
    used: int = 0
    """clock of the last release; 0 = never"""
    long: bool = False
    """its keys were turned by longrope's long set: of no use to a short sequence, and the other way round"""


@dataclass(frozen=True)
class Lease:
    """A slot given to a request."""

    slot: Slot
    reused: int
    """leading tokens that need no computing, those copied included"""
    copy_from: int | None
    """slot whose first `reused` tokens must be copied into this one"""


class SlotPool:
    """Slots with least-recently-used eviction."""

    def __init__(self, count: int, draft_window: int) -> None:
        self.slots = [Slot(i) for i in range(count)]
        self._window = draft_window
        self._clock = 0

    def acquire(self, ids: Sequence[int], long: bool = False) -> Lease | None:
        """A slot for a request that begins with `ids`; None when all are busy. `long`: see :class:`Slot`.

        First choice is the idle slot of the same conversation (see `_needed`) with the longest common beginning.
        Else the least recently used idle slot gives way, never a younger one that merely shares a beginning: that
        beginning is copied out of it. At least the last token is always computed, for its logits.
        """
        idle = [slot for slot in self.slots if not slot.busy]
        if not idle:
            return None
        limit = len(ids) - 1
        same = self._same(idle, ids, long)
        if same is not None:
            slot, reused = same
            lease = Lease(slot, min(reused, limit), None)
        else:
            lease = self._eldest(idle, ids, long, limit)
        lease.slot.busy, lease.slot.long = True, long
        lease.slot.ids, lease.slot.given = list(ids[: lease.reused]), len(ids)
        return lease

    def _same(self, idle: Sequence[Slot], ids: Sequence[int], long: bool) -> tuple[Slot, int] | None:
        """The idle slot that the request continues, and what they share. Looked for at every call of a loop.

        A slot whose last token that would have to be shared differs is passed over without comparing the others.
        """
        found: tuple[Slot, int] | None = None
        for slot in idle:
            needed = self._needed(slot)
            if not slot.ids or slot.long != long or needed > len(ids):
                continue
            if needed and slot.ids[needed - 1] != ids[needed - 1]:
                continue
            shared = common_prefix(slot.ids, ids)
            if shared >= needed and (found is None or (shared, slot.used) > (found[1], found[0].used)):
                found = slot, shared
        return found

    def _needed(self, slot: Slot) -> int:
        """Tokens that a request must share with a slot to continue it.

        All that the slot was given, and what was generated but for a few last tokens: those are a draft's own tokens
        that the target rejected. Two conversations under one system prompt differ within what was given, however
        little that is.
        """
        return max(min(slot.given, len(slot.ids)), len(slot.ids) - self._window)

    def _eldest(self, idle: Sequence[Slot], ids: Sequence[int], long: bool, limit: int) -> Lease:
        """The least recently used slot, with what it shares or with a longer beginning copied out of another one."""
        shared = {slot.number: common_prefix(slot.ids, ids) for slot in self.slots if slot.ids and slot.long == long}
        slot = min(idle, key=lambda s: s.used)
        source = max(shared, key=lambda number: shared[number], default=None)
        reused = 0 if source is None else min(shared[source], limit)
        if source is None or source == slot.number or reused < COPY_FROM:
            return Lease(slot, min(shared.get(slot.number, 0), limit), None)
        return Lease(slot, reused, source)

    def forget(self) -> None:
        """Empty all idle slots."""
        for slot in self.slots:
            if not slot.busy:
                slot.ids = []

    def release(self, slot: Slot, ids: list[int]) -> None:
        """Give the slot back; `ids` are the tokens now cached in it."""
        self._clock += 1
        slot.ids, slot.used, slot.busy = ids, self._clock, False


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that two sequences share from their start."""
    length = min(len(a), len(b))
    if length == 0 or a[0] != b[0]:
        return 0
    if list(a[:length]) == list(b[:length]):
        return length
    low, high = 0, length  # halving compares slices in C instead of tokens in Python
    while high - low > 1:
        middle = (low + high) // 2
        if list(a[low:middle]) == list(b[low:middle]):
            low = middle
        else:
            high = middle
    return low
