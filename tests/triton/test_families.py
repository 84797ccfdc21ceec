"""The engine's families on the metrics page: what is counted, what is said of it, and that faults stay inside."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.triton import fakepb
from tests.triton.modelfolder import load

LABELS = {"model": "tensorrt_llm", "version": "1"}


@pytest.fixture
def modules(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = load(repository / "tensorrt_llm")
    monkeypatch.setattr(found["families"], "START", 0.001)
    return found


def _pb(modules: Any) -> Any:
    return modules["wire"].pb


class Engine:
    """Says a number of things of itself, one after another, and stays with the last."""

    def __init__(self, *said: Any) -> None:
        self.config = SimpleNamespace(max_batch_size=8)
        self._said = list(said)
        self.done = False

    def stats(self) -> Any:
        self.done = len(self._said) == 1
        return self._said[0] if self.done else self._said.pop(0)


def _stats(active: int, waiting: int, steps: int) -> Any:
    return SimpleNamespace(active=active, waiting=waiting, steps=steps)


def _watched(families: Any, engine: Engine) -> None:
    families.watch(engine, 0.001)
    until = time.monotonic() + 10
    while not engine.done and time.monotonic() < until:
        time.sleep(0.001)
    families.close()


def test_lengths_of_an_answered_request(modules: Any) -> None:
    families = modules["families"].Families(_pb(modules), LABELS, lengths=True)
    families.answered(5, 50)
    found = {name: series.observed for name, series in _pb(modules).MetricFamily.histograms.items()}
    assert found == {"nv_llm_input_token_len": [5.0], "nv_llm_output_token_len": [50.0]}


def test_a_draft_counts_no_requests(modules: Any) -> None:
    families = modules["families"].Families(_pb(modules), LABELS, lengths=False)
    families.answered(5, 50)
    _watched(families, Engine(_stats(0, 0, 0)))
    assert _pb(modules).MetricFamily.histograms == {}
    assert _pb(modules).MetricFamily.page


def test_the_log_says_what_the_page_says(modules: Any) -> None:
    """TensorRT-LLM's checks compare the two, by these names."""
    pb = _pb(modules)
    _watched(modules["families"].Families(pb, LABELS, lengths=True), Engine(_stats(8, 3, 7), _stats(1, 0, 9)))
    page = {
        dict(labels).get("request_type") or dict(labels)["general_type"]: v
        for (_, labels), v in pb.MetricFamily.page.items()
    }
    assert {key: page[key] for key in ("active", "max", "scheduled", "waiting", "iteration_counter")} == {
        "active": 1, "max": 8, "scheduled": 1, "waiting": 0, "iteration_counter": 9,
    }  # fmt: skip
    said = [json.loads(line) for line in pb.Logger.lines]
    assert [line["Active Request Count"] for line in said] == [11, 1]
    assert said[-1]["Iteration Counter"] == 9
    assert abs(page["timestamp"] / 1e6 - time.time()) < 60
    # A double of microseconds since 1970 is off by one now and then.
    assert (int(said[-1]["Timestamp"][-6:]) - round(page["timestamp"])) % 1_000_000 in (0, 1, 999_999)


@pytest.mark.parametrize("broken", ["MetricFamily", "observe", "stats"])
def test_a_fault_is_said_once_and_reaches_no_request(
    modules: Any, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pb = _pb(modules)

    def fail(*_args: Any, **_more: Any) -> None:
        raise RuntimeError("no metrics\nat: somewhere")

    engine = Engine(_stats(0, 0, 0))
    if broken == "MetricFamily":
        monkeypatch.setattr(pb.MetricFamily, "__init__", fail)
    families = modules["families"].Families(pb, LABELS, lengths=True)
    if broken == "observe":
        monkeypatch.setattr(fakepb.Metric, "observe", fail)
    if broken == "stats":
        engine.stats = fail  # type: ignore[method-assign]
        families.watch(engine, 0.001)
        until = time.monotonic() + 10
        while not pb.Logger.lines and time.monotonic() < until:
            time.sleep(0.001)
        families.close()
    families.answered(1, 2)
    families.answered(1, 2)
    warned = [line for line in pb.Logger.lines if "no metrics of the engine from now on: no metrics" in line]
    assert len(warned) == 1
    assert "somewhere" not in warned[0]
