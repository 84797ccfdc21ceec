"""Sequences on either side of longrope's boundary.

A sequence of at most `boundary` tokens is turned by the short set of frequencies, a longer one by the long set, all its
tokens alike. A token's logits are then those of the sequence that ends with it, whatever the calls before: a step
stays on one side, and a sequence that grows past the boundary is computed anew, as transformers' `generate` does.
"""

from __future__ import annotations

from trtspec.backends.reference.sequence import Running
from trtspec.backends.reference.slots import Slot


def past(boundary: int | None, length: int) -> bool:
    """Whether a sequence of `length` tokens is turned by the long set."""
    return boundary is not None and length > boundary


def enter(slot: Slot, boundary: int | None, length: int) -> bool:
    """Put the slot on the side of a sequence of `length`; True when what it held is void and must be computed anew."""
    if not past(boundary, length) or slot.long:
        return False
    slot.long, slot.ids = True, []
    return True


def settle(running: Running, boundary: int | None) -> None:
    """Make the request's next step one that stays on its side; drafts that would cross are not judged."""
    assert running.slot is not None
    if enter(running.slot, boundary, len(running.ids)):
        running.cached = 0
    running.keep_drafts(room(boundary, len(running.ids)))


def room(boundary: int | None, length: int) -> int:
    """Draft tokens that a sequence of `length` tokens can judge in one step."""
    return 1 << 30 if boundary is None or length > boundary else boundary - length
