"""Loops: an answer that repeats itself is easy to draft, and flatters every acceptance measured on it."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_LOOP = 12
"""Tokens of the longest sequence whose repetition counts."""
TIMES = 3
SHORTEST_TAIL = 12
"""Tokens an answer's last half must have before it can count as a loop."""


def is_degenerate(ids: Sequence[int]) -> bool:
    """Whether the last half of an answer is one sequence of at most 12 tokens, three times or more."""
    tail = list(ids[len(ids) // 2 :])
    return any(
        len(tail) >= max(TIMES * period, SHORTEST_TAIL) and tail[period:] == tail[:-period]
        for period in range(1, LONGEST_LOOP + 1)
    )
