"""A server that lies over a real wire: every lie is caught, and has a name. The truth is believed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.measurement.fake import ALPHABET, prompts
from tests.measurement.liar import Script, lying
from trtspec.config.schema import RunConfig
from trtspec.errors import ServingError
from trtspec.measurement import scrape
from trtspec.measurement.result import ResultDocument
from trtspec.triton.generation import Chunk, Generation
from trtspec.workflows.measure import Asked, Running, measured_at
from trtspec.workflows.reporter import Silent

BLS = "tensorrt_llm_bls"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The liar's counters are never late."""
    monkeypatch.setattr(scrape, "PATIENCE", 0.2)


class Letters:
    """The toy's tokenizer."""

    size = len(ALPHABET)

    @staticmethod
    def ids(text: str) -> list[int]:
        return [ALPHABET.index(c) for c in text]


def config(**validation: Any) -> RunConfig:
    given = {"concurrency": 2, "warmup": 1, "request_timeout": 5.0} | validation
    return RunConfig.model_validate(
        {"name": "toy", "pair": {"target": {"path": "t"}, "draft": {"path": "d"}}, "validation": given}
    )


def result(script: Script | None = None, count: int = 12, **validation: Any) -> ResultDocument:
    with lying(script) as liar:
        where = Running(liar.url, http=True, metrics=liar.url)
        asked = Asked(tuple(prompts(count)), (), Letters())  # type: ignore[arg-type]
        return measured_at(config(**validation), where, asked, Silent())


def invalid(found: ResultDocument) -> set[str]:
    return {p.code for p in found.problems if p.severity == "invalid"}


def speculative(change: Any) -> Script:
    return Script(answer=lambda number, model, truth: change(truth) if model == BLS else truth)


def test_the_truth_is_believed() -> None:
    found = result()
    assert [p for p in found.problems if p.code != "costs.none"] == []
    assert found.counters is not None
    assert found.counters.outcome == "agree"
    assert [row.name for row in found.counters.rows][-5:] == ["rounds", "drafted", "tested", "accepted", "emitted"]
    domain = found.domains[0]
    assert domain.exactness is not None
    assert domain.exactness.equal == 12
    assert domain.figures.alpha is not None
    assert found.conditions.transport == "http"
    assert found.environment["triton"] == "0.0"
    assert any(row.speculative is not None and (row.speculative.chunks or 0) > 1 for row in domain.rows)


def chunks_as_tokens(truth: Generation) -> Generation:
    count = len(truth.chunks)
    return replace(truth, output_tokens=count, chunks=tuple(Chunk(0.0, 1) for _ in range(count)))


def last_round_only(truth: Generation) -> Generation:
    counts = np.zeros_like(truth.histogram)
    counts[0, 4, 1] = 1
    return replace(truth, histogram=counts, rounds=1, drafted=4, tested=2, accepted=1)


def never_drafts(truth: Generation) -> Generation:
    counts = np.zeros_like(truth.histogram)
    counts[0, 0, 0] = truth.output_tokens + (truth.finish_reason == "end_id")
    return replace(truth, histogram=counts, rounds=int(counts.sum()), drafted=0, tested=0, accepted=0)


def all_accepted(truth: Generation) -> Generation:
    """Claims more than it emitted."""
    counts = np.zeros_like(truth.histogram)
    counts[0, 4, 4] = truth.rounds
    return replace(
        truth, histogram=counts, drafted=4 * truth.rounds, tested=4 * truth.rounds, accepted=4 * truth.rounds
    )


def longer_rounds(truth: Generation) -> Generation:
    """Drafts more than it was asked for, and says so."""
    counts = np.zeros((2, 8, 8), truth.histogram.dtype)
    counts[:, :5, :5] = truth.histogram
    counts[0, 7] += counts[0, 4]
    counts[0, 4] = 0
    drafted = int((counts.sum(axis=(0, 2)) * np.arange(8)).sum())
    fifth = int(counts[0, 7, 4])  # rounds that accepted all four now reject one more
    return replace(truth, histogram=counts, drafted=drafted, tested=truth.tested + fifth)


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        (longer_rounds, "counters.longer"),
        (chunks_as_tokens, "tokens.text"),
        (last_round_only, "counters.tokens"),
        (never_drafts, "speculation.never-drafted"),
        (all_accepted, "counters.tokens"),
        (lambda truth: replace(truth, accepted=truth.accepted + 1), "counters.disagree"),
        (lambda truth: replace(truth, histogram=None), "counters.missing"),
        (lambda truth: replace(truth, mode="target-only:draft-failed"), "speculation.not-running"),
        (lambda truth: replace(truth, text="", output_tokens=0, chunks=()), "answers.empty"),
    ],
)
def test_lies_in_answers(lie: Any, code: str) -> None:
    assert code in invalid(result(speculative(lie)))


@pytest.mark.parametrize("count", [-3, 2**60])
@pytest.mark.parametrize("name", ["output_tokens", "drafted", "accepted"])
def test_counts_that_nothing_can_have(name: str, count: int) -> None:
    def sometimes(number: int, model: str, truth: Generation) -> Generation:
        return replace(truth, **{name: count}) if model == BLS and number % 3 == 0 else truth  # type: ignore[arg-type]

    found = result(Script(answer=sometimes))
    assert "answers.unusable" in invalid(found)
    assert f"a count of {count}" in str(found.problems)


def test_log_probabilities_that_are_too_few() -> None:
    assert invalid(result(Script(log_probs=lambda tokens: tokens - 1))) == {"lengths.log-probs"}


def test_no_log_probabilities_are_not_measured() -> None:
    found = result(Script(log_probs=lambda tokens: 0))
    assert {(p.code, p.severity) for p in found.problems} >= {("lengths.none", "note")}


def test_both_modes_counting_chunks_differ_from_their_texts() -> None:
    """Where nothing else could tell: the target alone, counted in pairs of tokens."""

    def halved(number: int, model: str, truth: Generation) -> Generation:
        count = (truth.output_tokens + 1) // 2
        return truth if model == BLS else replace(truth, output_tokens=count, chunks=())

    assert {"tokens.text", "tokens.differ"} <= invalid(result(Script(answer=halved)))


def test_histograms_that_agree_with_themselves_and_not_with_the_servers_counters() -> None:
    """Each answer is consistent; only the difference of two scrapes tells that a half was made up."""

    def better(truth: Generation) -> Generation:
        tokens = truth.output_tokens + (truth.finish_reason == "end_id")
        counts = np.zeros_like(truth.histogram)
        full, rest = divmod(tokens, 5)
        counts[0, 4, 4] = full
        counts[0, 0, 0] = rest
        rounds = full + rest
        return replace(truth, histogram=counts, rounds=rounds, drafted=4 * full, tested=4 * full, accepted=4 * full)

    found = result(speculative(better))
    assert invalid(found) == {"counters.server"}
    assert found.counters is not None
    assert "the server counted" in found.counters.reason


def test_counters_that_start_anew_are_not_compared() -> None:
    def reset(truth: Counter[str]) -> Counter[str]:
        """A long life before the first request, and a new one after it."""
        return truth or Counter({'trtspec_rounds_total{model="tensorrt_llm_bls"}': 10**6})

    found = result(Script(count=reset))
    assert found.counters is not None
    assert found.counters.outcome == "disturbed"
    assert {(p.code, p.severity) for p in found.problems} >= {("scrape.disturbed", "note")}
    assert "started anew" in found.problems[0].message


def test_somebody_elses_requests_are_told_apart() -> None:
    def more(truth: Counter[str]) -> Counter[str]:
        return Counter({k: v * 2 for k, v in truth.items()})

    found = result(Script(count=more))
    assert found.counters is not None
    assert found.counters.outcome == "disturbed"
    assert "somebody else" in found.problems[0].message


def every(n: int, answer: dict[str, Any]) -> Script:
    return Script(reply=lambda number, model: answer if number % n == 0 else None)


@pytest.mark.parametrize("reply", [{}, {"error": "out of memory"}, {"text_output": "no counts"}])
def test_dropped_requests_and_errors_behind_a_200(reply: dict[str, Any]) -> None:
    found = result(every(5, reply))
    assert "answers.unusable" in invalid(found)
    assert any(u.reason for u in found.domains[0].unusable)


def test_a_server_of_errors_is_given_up() -> None:
    with pytest.raises(ServingError, match="of the warm-up was answered"):
        result(every(1, {"error": "out of memory"}))


def test_a_request_that_never_ends_is_given_up_and_named() -> None:
    # A second is long against the toy's milliseconds, and short against the patience of a test.
    stuck = Script(before=lambda number, model: time.sleep(1.5 if number == 9 else 0.0))
    found = result(stuck, request_timeout=0.75)
    assert invalid(found) == {"answers.unusable"}
    assert "in time" in found.domains[0].unusable[0].reason


def test_one_token_for_ever_is_seen_in_every_row() -> None:
    """Whether that blocks is for the gates to say; here it is measured, and the texts differ."""
    found = result(speculative(lambda truth: replace(truth, text="a" * truth.output_tokens)))
    spec = [row.speculative for row in found.domains[0].rows if row.speculative is not None]
    assert found.domains[0].exactness is not None
    assert found.domains[0].exactness.undiagnosed == 12
    assert all(a.repeats for a in spec if a.output_tokens == 24)
