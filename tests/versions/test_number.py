"""Version numbers: forms, order, text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.errors import ConfigError
from trtspec.versions.number import Number, parse, shown
from trtspec.versions.row import Span

IN_ORDER = [
    "0.17.0.dev2024121700", "0.17.0rc1", "0.17.0", "0.17.0.post1", "0.18.2", "1.0.0", "1.0.3.2510",
    "1.1.0rc2", "1.1.0rc2.post1", "1.1.0rc10", "1.1.0", "1.2.1", "1.3.0rc3",
    "1.3.0rc20", "1.3.0rc21", "1.3.0", "1.4.0rc4",
]  # fmt: skip
numbers = st.builds(
    Number,
    st.tuples(*[st.integers(0, 30)] * 3),
    st.none() | st.integers(0, 40),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 20991231),
)


def test_the_order_of_what_was_released() -> None:
    assert sorted(map(parse, reversed(IN_ORDER))) == [parse(text) for text in IN_ORDER]


@given(numbers)
def test_text_and_number_are_one(number: Number) -> None:
    assert parse(str(number)) == number


@given(numbers, numbers, numbers)
def test_the_order_is_total(a: Number, b: Number, c: Number) -> None:
    assert (a < b) + (b < a) + (a == b) == 1
    assert not (a < b and b < c) or a < c


@given(numbers)
def test_dev_then_candidate_then_final_then_post(number: Number) -> None:
    release = number.release
    order = [Number(release, dev=1), Number(release, 0), Number(release, 1), Number(release), Number(release, post=1)]
    assert all(before < after for before, after in itertools.pairwise(order))
    assert Number(release, post=3) < Number((release[0], release[1], release[2] + 1), dev=0)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1.2", "1.2.0"), ("v1.2.1", "1.2.1"), ("1.2.1+cu130", "1.2.1"), (" 1.3.0.rc3\n", "1.3.0rc3"),
        ("1.3.0rc03", "1.3.0rc3"),
    ],
)  # fmt: skip
def test_spellings_of_the_same(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize("text", ["", "1", "one", "1.2.x", "1.2.1-beta", "1.2.3.4.5", "1..2", "1.2.1 or so"])
def test_no_version(text: str) -> None:
    with pytest.raises(ConfigError, match=r"here: not a TensorRT-LLM version .*such as 1\.2\.1"):
        parse(text, "here")


def test_finals_and_bases() -> None:
    assert [parse(text).is_final for text in ("1.2.1", "0.17.0.post1", "1.3.0rc3", "1.3.0.dev1")] == [
        True,
        True,
        False,
        False,
    ]
    assert parse("1.3.0rc3.post1").base == "1.3.0"
    assert [shown(text) for text in ("0.19.0", "1.2.1", "1.0.0")] == ["0.19", "1.2.1", "1.0"]


def test_a_post_release_lies_in_its_release_s_span() -> None:
    span = Span("0.17.0", "0.17.0")
    assert span.holds(parse("0.17.0.post1"))
    assert not span.holds(parse("0.17.0rc1"))
    assert not span.holds(parse("0.18.0"))
    assert Span("1.3.0rc1", "1.3.0rc3").holds(parse("1.3.0rc3.post1"))
    assert Span("1.3.0rc21", None).holds(parse("99.0.0"))
    assert (str(Span(None, None)), str(span), str(Span("1.0.0", None))) == ("all", "0.17.0", "1.0.0 - newest")
