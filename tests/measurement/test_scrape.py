"""Two scrapes and the answers between them: agreement, contradiction, and what allows no judgement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.measurement.fake import FakeClient, prompts, validation
from trtspec.errors import ServingError
from trtspec.measurement.endpoints import of_llm_api, of_pair
from trtspec.measurement.load import measure
from trtspec.measurement.records import Answer, Samples, total
from trtspec.measurement.scrape import OURS, REQUESTS, CounterWatch, Metrics, compare, memory, risen, settled

PAIR = of_pair(FakeClient, 4)


@pytest.fixture(scope="module")
def samples() -> Samples:
    return measure(FakeClient, prompts(9), validation(warmup=2), 4)


def page(answers: list[Answer], start: float = 0.0, process: str = "7", **more: float) -> Metrics:
    """What an honest server would show after these answers."""
    counted = total(a.histogram for a in answers)
    found: Metrics = {}
    for name, family in OURS.items():
        value = start + (0 if counted is None else getattr(counted, name)) + more.get(name, 0.0)
        found[family] = {(("model", "tensorrt_llm_bls"), ("process", process), ("task", "")): value}
    for mode, end in PAIR.items():
        count = start + sum(a.mode == mode for a in answers) + more.get(mode.replace("-", "_"), 0.0)
        found.setdefault(REQUESTS, {})[("model", end.model), ("version", "1")] = count
    return found


def every(samples: Samples) -> list[Answer]:
    return [*samples.unmeasured, *samples.answers]


def test_counters_of_an_honest_server(samples: Samples) -> None:
    found = compare(page([], 100.0), page(every(samples), 100.0), every(samples), PAIR)
    assert found.outcome == "agree"
    assert {row.name for row in found.rows} == {*OURS, "requests of ensemble", "requests of tensorrt_llm_bls"}


def test_the_warm_up_counts(samples: Samples) -> None:
    found = compare(page([]), page(every(samples)), samples.answers, PAIR)
    assert found.outcome == "disturbed"


@pytest.mark.parametrize("name", [*OURS])
@pytest.mark.parametrize("by", [-1.0, 1.0])
def test_one_token_of_difference(samples: Samples, name: str, by: float) -> None:
    found = compare(page([]), page(every(samples), **{name: by}), every(samples), PAIR)
    assert found.outcome == "disagree"
    assert f" {name}, its answers hold" in found.reason


def test_a_request_that_the_server_never_saw(samples: Samples) -> None:
    found = compare(page([]), page(every(samples), target_only=-1.0), every(samples), PAIR)
    assert found.outcome == "disagree"


def test_somebody_else(samples: Samples) -> None:
    found = compare(page([]), page(every(samples), speculative=1.0, rounds=9.0), every(samples), PAIR)
    assert found.outcome == "disturbed"
    assert "1 requests of tensorrt_llm_bls are not ours" in found.reason


def test_a_restart(samples: Samples) -> None:
    found = compare(page([], 1e6), page(every(samples)), every(samples), PAIR)
    assert found.outcome == "disturbed"
    assert "started anew" in found.reason


def test_a_model_that_was_reloaded_counts_in_another_series(samples: Samples) -> None:
    """What its former process had counted is gone from the page: nothing can be subtracted."""
    found = compare(page([], 5.0), page(every(samples), 5.0, process="8"), every(samples), PAIR)
    assert found.outcome == "disturbed"


def test_failed_requests_may_have_counted(samples: Samples) -> None:
    lost = replace(samples.answers[-1], fault="no answer in time", histogram=None)
    answers = [*every(samples)[:-1], lost]
    found = compare(page([]), page(every(samples)), answers, PAIR)
    assert found.outcome == "agree"
    assert "1 requests that failed" in found.reason
    assert compare(page([]), page(every(samples)[:-2]), answers, PAIR).outcome == "disagree"


def test_counters_that_come_late_are_waited_for(samples: Samples) -> None:
    pages = iter([page([]), page(every(samples)[:-4]), page(every(samples))])
    watch = CounterWatch(lambda: next(pages), page([]))
    assert watch.check(every(samples), PAIR).outcome == "agree"
    assert watch.latest == page(every(samples))


def test_counters_that_cannot_be_read_again(samples: Samples) -> None:
    def gone() -> Metrics:
        raise ServingError("no metrics: connection refused")

    found = CounterWatch(gone, page([])).check(every(samples), PAIR)
    assert (found.outcome, found.rows) == ("disturbed", ())
    assert "connection refused" in found.reason


def test_a_server_without_counters_is_not_measured(samples: Samples) -> None:
    assert compare({}, {}, samples.answers, PAIR).outcome == "not-measured"


def test_the_llm_api_counts_requests_only(samples: Samples) -> None:
    ends = of_llm_api(FakeClient, None)
    spec = [a for a in samples.answers if a.mode == "speculative"]
    after: Metrics = {REQUESTS: {(("model", "tensorrt_llm"),): float(len(spec))}}
    found = compare({}, after, spec, ends)
    assert (found.outcome, found.reason) == ("agree", "requests agree; the server counts no rounds")


def test_a_rise_is_over_all_labels_that_are_not_asked_for() -> None:
    before: Metrics = {"x": {(("a", "1"),): 3.0}}
    after: Metrics = {"x": {(("a", "1"),): 5.0, (("a", "2"),): 7.0}}
    assert risen(before, after, "x") == 9.0
    assert risen(before, after, "x", a="1") == 2.0
    assert risen(before, after, "y") is None


@pytest.mark.parametrize(
    ("page", "device", "headroom"),
    [
        ({}, None, None),
        ({"nv_cpu_memory_total_bytes": {(): 100.0}, "nv_cpu_memory_used_bytes": {(): 25.0}}, "host", 0.75),
        (
            {
                "nv_gpu_memory_total_bytes": {(("gpu_uuid", "a"),): 80.0, (("gpu_uuid", "b"),): 80.0},
                "nv_gpu_memory_used_bytes": {(("gpu_uuid", "a"),): 20.0, (("gpu_uuid", "b"),): 60.0},
                "nv_cpu_memory_total_bytes": {(): 100.0},
            },
            "gpu b",
            0.25,
        ),
    ],
)
def test_the_fullest_device(page: Any, device: str | None, headroom: float | None) -> None:
    found = memory(page)
    assert (found and found.device, found and found.headroom) == (device, headroom)


def test_counters_of_requests_that_have_just_ended_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are published late, and would be taken for those of the measurement."""
    waits: list[float] = []
    monkeypatch.setattr("trtspec.measurement.scrape.time.sleep", waits.append)
    labels = (("model", "tensorrt_llm_bls"),)
    pages = iter([{"trtspec_rounds_total": {labels: float(n)}} for n in (7, 9, 9, 11)])
    assert settled(lambda: next(pages), {"trtspec_rounds_total": {labels: 5.0}})["trtspec_rounds_total"][labels] == 9.0
    assert len(waits) == 3
    unused = {"trtspec_rounds_total": {labels: 0.0}}
    assert settled(lambda: pytest.fail("nothing to wait for"), unused) == unused
