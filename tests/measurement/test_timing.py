"""Time per token comes from tokens, never from chunks; goodput counts who kept every limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measurement.fake import prompts
from trtspec.measurement.parts import Slo
from trtspec.measurement.records import Answer, Block
from trtspec.measurement.sweep import Load, Timed, Window, tokens_within
from trtspec.measurement.timing import curve_point, percentiles, performance
from trtspec.triton.generation import Chunk

(PROMPT,) = prompts(1)


def answer(*chunks: tuple[float, int | None], tokens: int | None = None, seconds: float | None = None) -> Answer:
    pieces = tuple(Chunk(*c) for c in chunks)
    count = sum(c.tokens or 0 for c in pieces) if tokens is None else tokens
    first = pieces[0].seconds if pieces else None
    end = pieces[-1].seconds if pieces else 1.0
    return Answer(
        PROMPT, "speculative", text="x", output_tokens=count, seconds=seconds or end, first_token_seconds=first,
        chunks=pieces,
    )  # fmt: skip


def test_five_chunks_of_twelve_tokens() -> None:
    """Chunks 0.1 s apart that carry 1 + 3 + 2 + 4 + 2 tokens: 11 tokens in 0.4 s, not 4 gaps."""
    found = answer((0.2, 1), (0.3, 3), (0.4, 2), (0.5, 4), (0.6, 2))
    assert found.per_token_seconds == pytest.approx(0.4 / 11)
    assert found.gaps == pytest.approx([0.1] * 4)
    speed = performance([found], [Block("code", 0, "speculative", 0.6, 1, 12)], "speculative", Slo())
    assert speed is not None
    assert speed.per_token is not None
    assert speed.inter_chunk is not None
    assert speed.per_token.p50 == pytest.approx(0.4 / 11)
    assert speed.inter_chunk.p50 == pytest.approx(0.1)
    assert speed.tokens_per_second == pytest.approx(20.0)
    assert speed.goodput is None


@pytest.mark.parametrize(
    ("found", "per_token"),
    [
        (answer(), None),
        (answer((0.5, 7)), None),
        (answer((0.1, None), (0.5, None), tokens=5), 0.1),  # an uncounted first chunk is the prompt's one token
        (answer((0.1, 4), (0.5, 0), tokens=4), None),
    ],
)
def test_time_per_token_where_chunks_say_little(found: Answer, per_token: float | None) -> None:
    assert found.per_token_seconds == (None if per_token is None else pytest.approx(per_token))


@given(st.lists(st.tuples(st.floats(0.001, 1.0), st.integers(1, 9)), min_size=2, max_size=20))
def test_time_per_token_does_not_depend_on_how_tokens_are_packed(steps: list[tuple[float, int]]) -> None:
    """The same tokens by the same end, in one later chunk or in many."""
    times = [sum(s for s, _ in steps[: i + 1]) for i in range(len(steps))]
    many = answer(*((t, n) for t, (_, n) in zip(times, steps, strict=True)))
    first, rest = steps[0][1], sum(n for _, n in steps[1:])
    assert many.per_token_seconds == pytest.approx(
        answer((times[0], first), (times[-1], rest)).per_token_seconds or 0.0, rel=1e-6
    )


def test_goodput_counts_who_kept_every_limit() -> None:
    slow = answer((0.5, 1), (0.6, 1))
    good = answer((0.1, 1), (0.2, 2))
    late = answer((0.1, 1), (2.0, 1))
    failed = Answer(PROMPT, "speculative", fault="broke")
    slo = Slo(first_token=0.3, per_token=0.5)
    speed = performance([slow, good, late, failed], [Block("code", 0, "speculative", 2.0, 4, 7)], "speculative", slo)
    assert speed is not None
    assert speed.goodput is not None
    assert (speed.goodput.good, speed.goodput.requests, speed.goodput.requests_per_second) == (1, 4, 0.5)
    assert speed.goodput.share == 0.25


def test_an_open_loop_counts_the_time_before_it_could_send() -> None:
    sent_late = Timed(answer((0.1, 1), (0.3, 2)), due=1.0, sent=1.5)
    window = Window("speculative", Load(rate=2.0), 4.0, (sent_late,), 3.0, 1, 0.8)
    point = curve_point(window, Slo(latency=0.7))
    assert point.latency is not None
    assert point.first_token is not None
    assert point.goodput is not None
    assert point.latency.p50 == pytest.approx(0.8)
    assert point.first_token.p50 == pytest.approx(0.6)
    assert point.in_flight == pytest.approx(0.2)
    assert point.goodput.good == 0
    assert (point.tokens_per_second, point.requests_per_second) == (0.75, 0.25)


def test_tokens_are_counted_when_they_come() -> None:
    found = answer((0.5, 1), (1.5, 2), (2.5, 4))
    assert tokens_within(Timed(found, -1.0, -1.0), 1.0) == 2.0
    assert tokens_within(Timed(found, 0.0, 0.0), 2.0) == 3.0
    whole = answer(tokens=10, seconds=2.0)  # not streamed: in proportion
    assert tokens_within(Timed(whole, -1.0, -1.0), 5.0) == pytest.approx(5.0)
    assert tokens_within(Timed(whole, 9.0, 9.0), 5.0) == 0.0


def test_percentiles_of_nothing() -> None:
    assert percentiles([None, None]) is None
    found = percentiles([0.1, None, 0.3])
    assert found is not None
    assert found.p50 == pytest.approx(0.2)
