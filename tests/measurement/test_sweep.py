"""Windows of load: how many are in flight, what arrives when, and what counts."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measurement.fake import FakeClient, prompts, validation
from trtspec.errors import ServingError
from trtspec.measurement.arrivals import arrivals
from trtspec.measurement.asking import Asker
from trtspec.measurement.endpoints import of_pair
from trtspec.measurement.records import Answer
from trtspec.measurement.sweep import Load, Timed, Window, busy_within, loads, sweep
from trtspec.triton.generation import GenerateRequest, Generation


@given(st.floats(0.1, 50.0), st.floats(0.1, 20.0), st.integers(0, 99))
def test_arrivals_are_in_the_window_in_order_and_repeatable(rate: float, seconds: float, seed: int) -> None:
    found = arrivals(rate, seconds, seed)
    assert found == sorted(found) == arrivals(rate, seconds, seed)
    assert all(0.0 < t < seconds for t in found)


def test_arrivals_are_poisson() -> None:
    """Counts of a second have the rate as mean and as variance; gaps are exponential."""
    times = np.array(arrivals(20.0, 2000.0, 3))
    counts = np.histogram(times, bins=2000, range=(0, 2000))[0]
    assert counts.mean() == pytest.approx(20.0, rel=0.02)
    assert counts.var() == pytest.approx(20.0, rel=0.12)
    assert np.diff(times).std() == pytest.approx(0.05, rel=0.05)
    assert arrivals(20.0, 10.0, 3) != arrivals(20.0, 10.0, 4)


def timed(seconds: float, client: FakeClient | None = None) -> FakeClient:
    """A client whose answers say how long they took."""
    found = client or FakeClient()

    def lie(model: str, request: GenerateRequest, answer: Generation) -> Generation:
        time.sleep(seconds)
        return replace(answer, seconds=seconds, first_token_seconds=seconds / 2)

    found.lie = lie
    return found


def run(client: FakeClient, *chosen: Load, window: float = 0.3) -> list[Window]:
    asker = Asker(validation(window=window))
    return list(sweep(asker, of_pair(lambda: client, 4), prompts(6), chosen))


def alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("sweep")]


def test_each_load_is_measured_in_both_modes_in_turns() -> None:
    found = run(timed(0.01), Load(concurrency=1), Load(concurrency=3))
    assert [(w.mode, w.load.concurrency) for w in found] == [
        ("target-only", 1),
        ("speculative", 1),
        ("speculative", 3),
        ("target-only", 3),
    ]
    assert alive() == []


def test_a_closed_loop_keeps_its_requests_in_flight() -> None:
    client = timed(0.02)
    for window in run(client, Load(concurrency=4), window=1.0):
        # A pause of a loaded machine makes fewer, never more.
        assert 4 <= len(window.requests) <= 4 * 51
        assert all(0.0 <= t.due < 1.0 for t in window.requests)
    assert client.most_running == 4


def test_no_more_are_in_flight_than_were_kept_though_the_last_end_behind_the_window() -> None:
    def request(due: float, seconds: float, waited: float = 0.0) -> Timed:
        return Timed(Answer(prompts(1)[0], "speculative", seconds=seconds), due, due + waited)

    two = [request(-0.5, 1.0), request(-0.2, 0.7), request(0.5, 2.0), request(0.5, 3.0), request(3.5, 1.0)]
    assert busy_within(two, 2.0) == pytest.approx(2 * 2.0)
    assert busy_within([request(0.0, 0.5, waited=1.0)], 4.0) == pytest.approx(1.5)


def test_load_goes_on_until_the_last_request_of_the_window_has_ended() -> None:
    client = timed(0.2)
    (window, _) = run(client, Load(concurrency=2), window=0.25)
    last = max(t.ended for t in window.requests)
    assert last >= 0.25
    assert len(client.asked) > 2 * len(window.requests)


def test_an_open_loop_sends_what_is_due_whatever_still_runs() -> None:
    client = timed(0.5)
    (window, _) = run(client, Load(rate=20.0), window=0.5)
    due = [t - 0.1 for t in arrivals(20.0, 1.1, 0)]
    assert [t.due for t in sorted(window.requests, key=lambda t: t.due)] == pytest.approx(
        [t for t in due if 0.0 <= t < 0.5]
    )
    assert client.most_running > 2
    assert alive() == []


def test_failures_are_counted_and_end_nothing() -> None:
    def broken(model: str, request: GenerateRequest, answer: Generation) -> Generation:
        raise ServingError("overloaded: 3 running")

    (window, _) = run(FakeClient(lie=broken, seconds=lambda model: 0.02), Load(concurrency=1), window=0.6)
    assert window.requests
    assert not any(t.answer.usable for t in window.requests)
    assert window.output_tokens == 0.0


def test_loads() -> None:
    assert [str(load) for load in loads((1, 8), (0.5,))] == ["1 in flight", "8 in flight", "0.5 a second"]
