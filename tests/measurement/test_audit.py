"""Every lie about counts is caught, and honest answers are not accused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.measurement.fake import ALPHABET, FakeClient, Lie, prompts, validation
from trtspec.errors import ServingError
from trtspec.measurement.audit import Problem, audit, wrong_counts
from trtspec.measurement.load import measure
from trtspec.measurement.records import Answer, Samples
from trtspec.triton.generation import Chunk, GenerateRequest, Generation


def problems(client: FakeClient, count: int = 12) -> list[Problem]:
    return audit("code", measure(lambda: client, prompts(count), validation(), 4), greedy=True)


def codes(lie: Lie, **client: float) -> dict[str, int]:
    return {p.code: p.count for p in problems(FakeClient(lie=lie, **client))}  # type: ignore[arg-type]


def speculative(change: Callable[[Generation], Generation]) -> Lie:
    return lambda model, request, answer: change(answer) if model == "tensorrt_llm_bls" else answer


@pytest.mark.parametrize("agrees", [0.3, 0.7, 1.0])
def test_honest_answers_have_no_problem(agrees: float) -> None:
    assert problems(FakeClient(agrees=agrees)) == []


@pytest.mark.parametrize("name", ["rounds", "drafted", "tested", "accepted"])
def test_a_total_that_is_not_the_histograms(name: str) -> None:
    lie = speculative(lambda a: replace(a, **{name: getattr(a, name) + 1}))  # type: ignore[arg-type]
    assert codes(lie) == {"counters.disagree": 12}


def test_only_the_last_round_reported() -> None:
    def last_round(answer: Generation) -> Generation:
        counts = np.zeros_like(answer.histogram)
        counts[0, 4, 1] = 1
        return replace(answer, histogram=counts, rounds=1, drafted=4, tested=2, accepted=1)

    assert codes(speculative(last_round)).keys() == {"counters.tokens"}


def test_chunks_counted_as_tokens() -> None:
    found = codes(speculative(lambda a: replace(a, output_tokens=a.rounds)))
    assert found.keys() >= {"counters.tokens", "tokens.differ"}


def test_the_end_token_may_be_counted_by_the_round_alone() -> None:
    client = FakeClient()
    answers = measure(lambda: client, prompts(40), validation(), 4).of("code", "speculative")
    gaps = {a.finish_reason: set() for a in answers}  # type: dict[str, set[int]]
    for a in answers:
        assert a.histogram is not None
        gaps[a.finish_reason].add(a.histogram.emitted - a.output_tokens)
    assert gaps == {"end_id": {1}, "length": {0}}


@pytest.mark.parametrize("mode", ["target-only:policy", ""])
def test_speculation_that_did_not_run(mode: str) -> None:
    (problem,) = problems(FakeClient(lie=speculative(lambda a: replace(a, mode=mode))))
    assert (problem.code, problem.count) == ("speculation.not-running", 12)
    assert repr(mode or "nothing") in problem.message


def test_no_histogram_is_not_zero_acceptance() -> None:
    assert codes(speculative(lambda a: replace(a, histogram=None))) == {"counters.missing": 12}


def test_a_draft_that_is_never_asked() -> None:
    def undrafted(answer: Generation) -> Generation:
        counts = np.zeros_like(answer.histogram)
        counts[0, 0, 0] = answer.output_tokens
        return replace(answer, histogram=counts, rounds=answer.output_tokens, drafted=0, tested=0, accepted=0)

    assert codes(speculative(undrafted)) == {"speculation.never-drafted": 1}


def test_a_draft_that_is_never_right() -> None:
    assert codes(lambda model, request, answer: answer, agrees=0.0) == {"speculation.never-accepted": 1}


def test_more_tokens_than_allowed() -> None:
    found = codes(lambda model, request, answer: replace(answer, output_tokens=answer.output_tokens + 100))
    assert found["tokens.too-many"] == 24


def test_a_text_of_no_tokens() -> None:
    lie: Lie = lambda model, request, answer: answer if answer.mode else replace(answer, output_tokens=0)  # noqa: E731
    assert codes(lie)["tokens.none-for-text"] >= 11


def broken(share: float, count: int) -> list[Problem]:
    asked = [p.text for p in prompts(count)][: round(share * count)]

    def lie(model: str, request: GenerateRequest, answer: Generation) -> Generation:
        if model == "ensemble" and request.prompt in asked:
            raise ServingError("the model broke")
        return answer

    # One request at a time fails in between, so that the run is not given up.
    return problems(FakeClient(lie=lie), count)


def test_one_failure_in_many_is_reported_elsewhere() -> None:
    assert broken(1 / 120, 120) == []


def test_more_failures_make_it_a_choice_of_answers() -> None:
    (problem,) = broken(3 / 120, 120)
    assert (problem.code, problem.count) == ("answers.unusable", 3)
    assert "3 of 120 target-only requests failed" in problem.message
    assert "the model broke" in problem.message


def test_nothing_measured() -> None:
    samples = measure(FakeClient, prompts(2), validation(), 4)
    assert [p.code for p in audit("law", samples, greedy=True)] == ["answers.none"]


def test_one_mode_alone_is_enough_where_only_one_was_to_be_measured() -> None:
    whole = measure(FakeClient, prompts(12), validation(), 4)
    half = replace(whole, answers=tuple(a for a in whole.answers if a.mode == "speculative"))
    assert [p.code for p in audit("code", half, greedy=True)] == ["answers.none"]
    assert audit("code", half, greedy=True, modes=("speculative",)) == []


def test_chunks_that_hold_more_tokens_than_the_answer() -> None:
    lie: Lie = lambda model, request, answer: replace(answer, chunks=(Chunk(0.001, answer.output_tokens + 1),))  # noqa: E731
    assert codes(lie)["tokens.chunks"] >= 12


@pytest.mark.parametrize("times", [(0.002, 0.001), (0.001, 99.0), (-1.0, 0.001)])
def test_chunks_that_come_out_of_time(times: tuple[float, ...]) -> None:
    lie = speculative(lambda a: replace(a, chunks=tuple(Chunk(t, 1) for t in times)))
    assert codes(lie) == {"timing.impossible": 12}


def stalling(gap: float) -> Lie:
    return speculative(
        lambda a: replace(
            a, seconds=gap + 1, chunks=(*(Chunk(0.01 * i, None) for i in range(4)), Chunk(0.03 + gap, None))
        )
    )


def test_a_stall_is_named_and_a_slow_step_is_none() -> None:
    assert codes(stalling(30.0)) == {"timing.stalled": 12}
    assert codes(stalling(4.0)) == {}


def test_a_request_that_was_dropped_and_called_a_success() -> None:
    client = FakeClient(lie=speculative(lambda a: replace(a, text="", output_tokens=0, chunks=())))
    assert {p.code for p in problems(client)} == {"answers.empty", "counters.tokens"}


def text_ids(text: str) -> list[int]:
    return [ALPHABET.index(c) for c in text]


@pytest.mark.parametrize(("share", "found"), [(1.0, []), (0.9, []), (0.5, ["tokens.text"]), (2.0, ["tokens.text"])])
def test_tokens_are_counted_anew(share: float, found: list[str]) -> None:
    samples = measure(FakeClient, prompts(12), validation(), 4)
    told = tuple(
        replace(a, output_tokens=round(a.output_tokens * share)) if a.mode == "speculative" else a
        for a in samples.answers
    )
    assert [p.code for p in wrong_counts("code", replace(samples, answers=told), text_ids)] == found


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ((5, 20, 5, 10), []),  # a server that reports no rounds
        ((5, 20, 0, 10), []),
        ((6, 5, 5, 10), ["counters.disagree"]),
        ((11, 20, 0, 10), ["counters.tokens"]),
        ((5, 20, 2, 10), ["counters.tokens"]),
        ((5, 20, 4, 8), []),  # an end token that is no output token
    ],
)
def test_totals_without_rounds(counts: tuple[int, int, int, int], found: list[str]) -> None:
    accepted, drafted, rounds, tokens = counts
    prompt = prompts(1)[0]
    answer = Answer(
        prompt, "speculative", text="x", spec_mode="speculative", output_tokens=tokens, totals_only=True,
        accepted=accepted, drafted=drafted, rounds=rounds or None,
    )  # fmt: skip
    samples = Samples((answer,), ())
    assert [p.code for p in audit("code", samples, greedy=True, modes=("speculative",))] == found


def test_a_lone_pair_with_two_spellings_is_no_lie() -> None:
    first = prompts(12)[0].text
    lie: Lie = lambda model, request, answer: (  # noqa: E731
        replace(answer, output_tokens=answer.output_tokens - 1)
        if model == "ensemble" and request.prompt == first
        else answer
    )
    assert codes(lie) == {}
