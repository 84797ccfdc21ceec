"""The pipeline's metrics: what is published, under which labels, and that nothing of it disturbs a request."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triton import fakepb
from tests.triton.modelfolder import load


@dataclass(frozen=True)
class Round:
    """What rounds.py tells of a round."""

    drafted: int = 4
    tested: int = 3
    accepted: int = 2
    emitted: int = 3
    seconds: float = 0.03


@pytest.fixture
def modules(repository: Path) -> dict[str, ModuleType]:
    """The BLS's modules with a metrics page of their own."""
    return load(repository / "tensorrt_llm_bls")


@pytest.fixture
def metrics(modules: dict[str, ModuleType]) -> Iterator[Any]:
    found = modules["metrics"].Metrics(modules["pb"], "tensorrt_llm_bls", "1")
    yield found
    found.close()


def page(modules: dict[str, ModuleType]) -> dict[str, dict[str, float]]:
    """{family: {labels besides model, version and process, as text: value}}."""
    found: dict[str, dict[str, float]] = {}
    for (name, labels), value in modules["pb"].MetricFamily.page.items():
        own = dict(labels)
        assert (own.pop("model"), own.pop("version")) == ("tensorrt_llm_bls", "1")
        # Two processes with the same labels would free each other's series inside the server.
        assert own.pop("process") == str(os.getpid())
        found.setdefault(name, {})[" ".join(f"{k}={v}" for k, v in sorted(own.items()))] = value
    return found


def test_a_round_is_counted_by_task(modules: dict[str, ModuleType], metrics: Any) -> None:
    metrics.know(["code", "chat"])
    for _ in range(2):
        metrics.round("code", Round())
    metrics.round(None, Round(drafted=1, tested=1, accepted=1, emitted=2, seconds=60.0))
    metrics.flush()
    found = page(modules)
    of_code = {name: series["task=code"] for name, series in found.items() if "task=code" in series}
    assert of_code == {
        "trtspec_rounds_total": 2,
        "trtspec_drafted_tokens_total": 8,
        "trtspec_tested_tokens_total": 6,
        "trtspec_accepted_tokens_total": 4,
        "trtspec_emitted_tokens_total": 6,
        "trtspec_output_tokens_total": 0,
        "trtspec_round_seconds_sum": pytest.approx(0.06),
        "trtspec_round_seconds_count": 2,
    }
    buckets = found["trtspec_round_seconds_bucket"]
    assert (buckets["le=0.02 task=code"], buckets["le=0.05 task=code"], buckets["le=+Inf task=code"]) == (0, 2, 2)
    assert (buckets["le=5.0 task="], buckets["le=+Inf task="]) == (0, 1)
    assert found["trtspec_rounds_total"]["task=chat"] == 0


def test_every_known_task_has_its_series_from_the_start(modules: dict[str, ModuleType], metrics: Any) -> None:
    metrics.flush()
    found = page(modules)
    assert set(found["trtspec_fallbacks_total"]) >= {f"reason={r} task=" for r in modules["metrics"].REASONS}
    assert set(found["trtspec_rounds_total"]) == {"task=", "task=other"}


def test_what_clients_choose_never_becomes_a_label(modules: dict[str, ModuleType], metrics: Any) -> None:
    metrics.know(["code"])
    metrics.flush()
    before = sum(len(series) for series in page(modules).values())
    for i in range(1000):
        metrics.round(f"task {i}", Round())
        metrics.request(f"task {i}", f"mode {i}", f"finish {i}", tokens=5)
        metrics.request("code", f"target-only:reason {i}", "length", tokens=1)
        metrics.fallback(f"task {i}", f"reason {i}")
        metrics.decision(f"task {i}", f"reason {i}", 64 + i)
        metrics.guard(f"task {i}", True)
    metrics.flush()
    found = page(modules)
    assert found["trtspec_rounds_total"]["task=other"] == 1000
    assert found["trtspec_output_tokens_total"] == {"task=": 0, "task=code": 1000, "task=other": 5000}
    assert found["trtspec_requests_total"] == {
        "finish=other mode=other task=other": 1000,
        "finish=length mode=target-only:other task=code": 1000,
    }
    assert found["trtspec_fallbacks_total"]["reason=other task=other"] == 1000
    assert found["trtspec_policy_decisions_total"] == {"draft_len=64 reason=other task=other": 1000}
    assert sum(len(series) for series in found.values()) - before < 40


def test_a_policy_with_very_many_tasks_does_not_flood_the_page(modules: dict[str, ModuleType], metrics: Any) -> None:
    most = modules["metrics"].MAX_TASKS
    metrics.know(f"a{i}" for i in range(most))
    metrics.know(f"b{i}" for i in range(most))
    metrics.flush()
    assert len(page(modules)["trtspec_rounds_total"]) == most + 1


def test_gauges_are_levels(modules: dict[str, ModuleType], metrics: Any) -> None:
    for count in (1, 2, 3):
        metrics.in_flight(count)
        metrics.waiting(10 * count)
        metrics.flush()
    metrics.guard("", True)
    metrics.flush()
    found = page(modules)
    assert found["trtspec_requests_in_flight"] == {"": 3}
    assert found["trtspec_requests_waiting"] == {"": 30}
    assert found["trtspec_guard_open"] == {"task=": 1}
    metrics.guard("", False)
    metrics.flush()
    assert page(modules)["trtspec_guard_open"] == {"task=": 0}


def test_the_thread_publishes_by_itself(modules: dict[str, ModuleType], metrics: Any) -> None:
    published = threading.Event()
    increment = fakepb.Metric.increment

    def seen(metric: fakepb.Metric, by: float) -> None:
        increment(metric, by)
        published.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakepb.Metric, "increment", seen)
        metrics.round("", Round())
        assert published.wait(30)
    assert page(modules)["trtspec_rounds_total"]["task="] == 1


def test_a_server_without_metrics_is_said_once_and_nothing_raises(modules: dict[str, ModuleType]) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("Error when creating MetricFamily: metrics are off\n\nAt:\n  /secret/model.py(3): new")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modules["pb"].MetricFamily, "__init__", refuse)
        metrics = modules["metrics"].Metrics(modules["pb"], "tensorrt_llm_bls", "1")
        for _ in range(3):
            metrics.round("", Round())
            metrics.flush()
        metrics.close()
    said = [line for line in modules["pb"].Logger.lines if "metrics" in line]
    assert said == ["no metrics from now on: Error when creating MetricFamily: metrics are off"]


def test_a_python_backend_without_metric_families_is_good_enough(modules: dict[str, ModuleType]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(modules["pb"], "MetricFamily")
        metrics = modules["metrics"].Metrics(modules["pb"], "tensorrt_llm_bls", "1")
        metrics.round("", Round())
        metrics.flush()
        metrics.close()


ROUNDS = st.builds(Round, *[st.integers(0, 8)] * 4, seconds=st.floats(0, 20))


@given(st.lists(st.tuples(st.sampled_from(["", "code", "unknown"]), ROUNDS), max_size=30))
def test_sums_hold_however_the_flushes_fall(bls: dict[str, ModuleType], done: list[tuple[str, Round]]) -> None:
    tally = bls["metrics"].Tally()
    total: Counter[Any] = Counter()
    for i, (task, one) in enumerate(done):
        tally.add([(("trtspec_rounds_total", (("task", task),)), 1)])
        tally.time((("task", task),), one.seconds)
        if i % 3 == 0:
            total.update(tally.take()[0])
    total.update(tally.take()[0])
    for task in {task for task, _ in done}:
        label = (("task", task),)
        mine = [one.seconds for name, one in done if name == task]
        assert total["trtspec_rounds_total", label] == len(mine) == total["trtspec_round_seconds_count", label]
        assert total["trtspec_round_seconds_sum", label] == pytest.approx(sum(mine))
        for end in bls["metrics"].BUCKETS:
            bucket = ("trtspec_round_seconds_bucket", (*label, ("le", str(end))))
            assert total[bucket] == sum(seconds <= end for seconds in mine)


def test_many_threads_lose_nothing(modules: dict[str, ModuleType], metrics: Any) -> None:
    def work() -> None:
        for _ in range(500):
            metrics.round("", Round())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        metrics.flush()
    for thread in threads:
        thread.join()
    metrics.flush()
    assert page(modules)["trtspec_accepted_tokens_total"]["task="] == 8 * 500 * 2
