"""Every lie about counts is caught, and honest answers are not accused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.measurement.fake import FakeClient, Lie, prompts, validation
from trtspec.errors import ServingError
from trtspec.measurement.audit import Problem, audit
from trtspec.measurement.load import measure
from trtspec.triton.generation import GenerateRequest, Generation


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
    assert "3 of 240 requests failed" in problem.message
    assert "the model broke" in problem.message


def test_nothing_measured() -> None:
    samples = measure(FakeClient, prompts(2), validation(), 4)
    assert [p.code for p in audit("law", samples, greedy=True)] == ["answers.none"]


def test_a_lone_pair_with_two_spellings_is_no_lie() -> None:
    first = prompts(12)[0].text
    lie: Lie = lambda model, request, answer: (  # noqa: E731
        replace(answer, output_tokens=answer.output_tokens - 1)
        if model == "ensemble" and request.prompt == first
        else answer
    )
    assert codes(lie) == {}
