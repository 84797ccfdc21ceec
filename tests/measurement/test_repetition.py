"""What counts as a loop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.measurement.repetition import is_degenerate, repeats


@pytest.mark.parametrize(
    ("ids", "loop"),
    [
        ([], False),
        ([7] * 24, True),
        ([7] * 8, True),  # nothing but one token
        ([7] * 7, False),  # too short to say
        ([1, *[7] * 21], False),  # too short a tail to say
        (list(range(40)), False),
        ([*range(20), *[1, 2, 3] * 8], True),
        ([*range(20), *[1, 2, 3] * 7, 1, 2, 9], False),
        (list(range(13)) * 10, False),  # a longer sequence than what counts
        (list(range(12)) * 10, True),
        ([1, 2, 3, 4, 5, 6, 7, 8] * 4, False),  # only twice in the last half
    ],
)
def test_the_last_half_is_judged(ids: list[int], loop: bool) -> None:
    assert is_degenerate(ids) is loop


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_any_sequence_that_fills_the_last_half_is_a_loop(start: list[int], sequence: list[int]) -> None:
    tail = sequence * max(6, -(-24 // len(sequence)))
    assert is_degenerate([*start[: len(tail)], *tail])


@pytest.mark.parametrize(("text", "loop"), [("!!!!!!!!", True), ("!!!!!!!", False), (" ", False), ("aaaabbbb", False)])
def test_a_text_of_one_character(text: str, loop: bool) -> None:
    assert repeats(text) is loop
