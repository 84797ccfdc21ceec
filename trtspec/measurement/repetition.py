"""Loops: an answer that repeats itself is easy to draft, and flatters every acceptance measured on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

LONGEST_LOOP = 12
"""Tokens of the longest sequence whose repetition counts."""
TIMES = 3
SHORTEST_TAIL = 12
"""Tokens an answer's last half must have before it can count as a loop."""
SHORTEST_ALONE = 8
"""Tokens, or characters, of an answer that consists of nothing but one of them: `!!!!!!!!` is what NaN logits write."""


def is_degenerate(ids: Sequence[int]) -> bool:
    """Whether the last half of an answer is one sequence of at most 12 tokens, three times or more; or all is one."""
    tail = list(ids[len(ids) // 2 :])
    return _one_only(ids) or any(
        len(tail) >= max(TIMES * period, SHORTEST_TAIL) and tail[period:] == tail[:-period]
        for period in range(1, LONGEST_LOOP + 1)
    )


LONGEST_PHRASE = 60
"""Characters of the longest phrase whose repetition counts."""
SHORTEST_TEXT = 36
"""Characters a text's last half must have before it can count as a loop."""


def repeats(text: str, ids: Callable[[str], Sequence[int]] | None = None) -> bool:
    """The same of a text, in characters and, with a tokenizer, in tokens.

    Both, because tokens of a loop need not end where the loop does, and a loop of long tokens is longer than a phrase.
    """
    tail = text[len(text) // 2 :]
    looped = any(
        len(tail) >= max(TIMES * period, SHORTEST_TEXT) and tail[period:] == tail[:-period]
        for period in range(1, LONGEST_PHRASE + 1)
    )
    return looped or _one_only(text.strip()) or (ids is not None and is_degenerate(ids(text)))


def _one_only(parts: Sequence[object]) -> bool:
    return len(parts) >= SHORTEST_ALONE and len(set(parts)) == 1
