"""Text that grows: whole characters, stop words, end tokens, and what may be shown."""

from __future__ import annotations

import time
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triton.modelfolder import EOS, EOT, ids_of

TEXTS = st.text(alphabet="ab€😀 \n", max_size=24)


def _writer(bls: dict[str, ModuleType], **limits: Any) -> Any:
    vocabulary = _vocabulary(bls)
    given_limits = {"max_tokens": 1000, "end_ids": frozenset({EOS, EOT})} | limits
    return bls["writing"].Writer(vocabulary, bls["writing"].Limits(**given_limits))


_KNOWN: dict[int, Any] = {}


def _vocabulary(bls: dict[str, ModuleType]) -> Any:
    if id(bls) not in _KNOWN:
        _KNOWN[id(bls)] = bls["vocabulary"].Vocabulary(bls["model"].HERE / "tokenizer")
    return _KNOWN[id(bls)]


def _chunks(tokens: list[int], cuts: list[int]) -> list[list[int]]:
    places = sorted({0, len(tokens), *(c % (len(tokens) + 1) for c in cuts)})
    return [tokens[a:b] for a, b in pairwise(places)]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 99), max_size=6))
def test_pieces_add_up_to_the_text_whatever_the_rounds(bls: dict[str, ModuleType], text: str, cuts: list[int]) -> None:
    writer = _writer(bls)
    tokens = ids_of(text)
    pieces, counts = [], []
    for chunk in _chunks(tokens, cuts):
        assert writer.extend(chunk) == len(chunk)
        piece, count = writer.piece()
        assert "\ufffd" not in piece  # never half a character
        pieces.append(piece)
        counts.append(count)
    writer.end("end_id")
    piece, count = writer.piece()
    assert "".join([*pieces, piece]) == text == writer.text()
    assert sum([*counts, count]) == len(tokens)


@given(
    text=TEXTS,
    words=st.lists(st.text(alphabet="ab€ \n", min_size=1, max_size=3), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 99), max_size=6),
    as_tokens=st.booleans(),
)
def test_the_answer_ends_before_the_first_stop_word_however_it_is_split(
    bls: dict[str, ModuleType], text: str, words: list[str], cuts: list[int], as_tokens: bool
) -> None:
    stops = {"stop_ids": tuple(tuple(ids_of(w)) for w in words)} if as_tokens else {"stop_texts": tuple(words)}
    writer = _writer(bls, **stops)
    pieces = []
    for chunk in _chunks(ids_of(text), cuts):
        kept = writer.extend(chunk)
        assert 0 <= kept <= len(chunk)
        pieces.append(writer.piece())
        if writer.finish:
            break
    # The first word to be complete ends the answer; of two that end at once, the longer.
    ends = [(text.find(w) + len(w), -len(w)) for w in words if w in text]
    expected = text if not ends else text[: min(ends)[0] + min(ends)[1]]
    writer.end("length")
    pieces.append(writer.piece())
    assert writer.text() == expected
    if not as_tokens:
        # Nothing of a stop word was ever shown or counted.
        assert "".join(piece for piece, _ in pieces) == expected
        assert sum(count for _, count in pieces) == len(writer.tokens)
    assert (writer.finish == "stop_words") is bool(ends)
    assert writer.tokens == ids_of(expected)


@given(
    text=TEXTS,
    words=st.lists(st.text(alphabet="ab€ \n", min_size=1, max_size=3), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 99), max_size=6),
    as_tokens=st.booleans(),
)
def test_the_answer_ends_behind_the_first_stop_word_where_it_is_included(
    bls: dict[str, ModuleType], text: str, words: list[str], cuts: list[int], as_tokens: bool
) -> None:
    stops = {"stop_ids": tuple(tuple(ids_of(w)) for w in words)} if as_tokens else {"stop_texts": tuple(words)}
    writer = _writer(bls, include_stop_words=True, **stops)
    shown = ""
    for chunk in _chunks(ids_of(text), cuts):
        writer.extend(chunk)
        shown += writer.piece()[0]
        if writer.finish:
            break
    ends = [text.find(w) + len(w) for w in words if w in text]
    expected = text[: min(ends)] if ends else text
    writer.end("length")
    shown += writer.piece()[0]
    assert shown == writer.text() == expected
    assert writer.tokens == ids_of(expected)
    assert (writer.finish == "stop_words") is bool(ends)


def test_an_end_token_inside_a_block_drops_what_follows(bls: dict[str, ModuleType]) -> None:
    writer = _writer(bls)
    a, b, c = ids_of("abc")
    assert writer.extend([a, EOT, b, c]) == 1
    assert (writer.text(), writer.finish) == ("a", "end_id")
    assert writer.extend([b]) == 0


def test_end_tokens_before_min_tokens_are_ordinary(bls: dict[str, ModuleType]) -> None:
    writer = _writer(bls, min_tokens=2)
    (a,) = ids_of("a")
    assert writer.extend([EOS, a, EOS, a]) == 2
    assert (writer.tokens, writer.finish) == ([EOS, a], "end_id")


def test_max_tokens_cuts_a_block(bls: dict[str, ModuleType]) -> None:
    writer = _writer(bls, max_tokens=2)
    assert writer.extend(ids_of("abc")) == 2
    assert (writer.text(), writer.finish) == ("ab", "length")


def test_half_a_character_at_the_end_is_shown_as_the_whole_text_is_decoded(bls: dict[str, ModuleType]) -> None:
    writer = _writer(bls)
    writer.extend(ids_of("a😀")[:3])
    assert writer.piece() == ("a", 1)
    writer.end("length")
    assert writer.piece() == ("\ufffd", 2)


@pytest.mark.parametrize(("text", "cut", "kept"), [("aSTOP", "a", 1), ("STOP", "", 0)])
def test_tokens_of_a_stop_word_are_not_kept(bls: dict[str, ModuleType], text: str, cut: str, kept: int) -> None:
    writer = _writer(bls, stop_texts=("STOP",))
    assert writer.extend(ids_of(text + "b")) == kept
    assert writer.text() == cut


@given(text=st.text(alphabet="ab", max_size=12), word=st.text(alphabet="ab", min_size=1, max_size=6))
def test_what_may_begin_a_stop_word_is_the_longest_such_end(bls: dict[str, ModuleType], text: str, word: str) -> None:
    expected = max((n for n in range(len(word)) if text.endswith(word[:n])), default=0)
    assert bls["writing"]._begun(text, word) == expected


def test_many_long_stop_words_do_not_keep_the_others_waiting(bls: dict[str, ModuleType]) -> None:
    """The most that the limits allow, which took 50 ms for every piece of a stream."""
    letters = "abcdefgh"
    writer = _writer(bls, stop_texts=tuple(letters[i % 8] * 1000 + str(i) for i in range(64)))
    began = time.process_time()
    for token in ids_of("the letters a to h " * 15):
        writer.extend([token])
        writer.piece()
    assert time.process_time() - began < 3.0
