"""The worker thread: idle, cancelled, failing, closing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from trtspec.backends.reference import Request, Update, open_engine
from trtspec.backends.reference.engine import ReferenceEngine

pytestmark = pytest.mark.torch
LONG = Request("long", (1, 2, 3), 100)


class Taker:
    """Collects updates; `first` and `last` are events."""

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.first, self.last = threading.Event(), threading.Event()

    def __call__(self, update: Update) -> None:
        self.updates.append(update)
        self.first.set()
        if update.finished:
            self.last.set()

    @property
    def reason(self) -> str:
        return self.updates[-1].finish_reason


class Held:
    """Stops the engine between two steps until `go` is set."""

    def __init__(self, engine: ReferenceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = threading.Event()
        core = engine._core
        step = core.step

        def held(feeds: Any) -> Any:
            assert self.go.wait(30)
            return step(feeds)

        monkeypatch.setattr(core, "step", held)


def test_an_idle_worker_uses_no_cpu(engine: ReferenceEngine) -> None:
    engine.generate(Request("r", (1, 2), 2))
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1


def test_a_running_request_is_cancelled_and_its_slot_is_free(
    engine: ReferenceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    takers = [Taker() for _ in range(5)]
    tickets = [engine.submit(LONG, taker) for taker in takers]  # four run, the fifth waits for a slot
    assert takers[3].first.wait(30)
    tickets[0].cancel()
    assert takers[0].last.wait(30)
    assert takers[0].reason == "cancelled"
    assert takers[4].first.wait(30), "the freed slot went to the waiting request"
    for ticket in tickets[1:]:
        ticket.cancel()
    for taker in takers[1:]:
        assert taker.last.wait(30)
    assert engine.generate(Request("after", (4, 5), 3)).finish_reason == "length"
    assert engine.stats().waiting == 0


def test_a_waiting_request_is_cancelled_without_ever_running(
    engine: ReferenceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(engine, monkeypatch)
    running = [Taker() for _ in range(4)]
    tickets = [engine.submit(LONG, taker) for taker in running]
    waiting = Taker()
    ticket = engine.submit(LONG, waiting)
    ticket.cancel()
    held.go.set()
    assert waiting.last.wait(30)
    assert (waiting.reason, len(waiting.updates)) == ("cancelled", 1)
    for one in tickets:
        one.cancel()


def test_what_a_cancelled_request_computed_can_be_reused(engine: ReferenceEngine) -> None:
    taker = Taker()
    ticket = engine.submit(LONG, taker)
    assert taker.first.wait(30)
    ticket.cancel()
    assert taker.last.wait(30)
    made = tuple(token for update in taker.updates for token in update.new_ids)
    before = engine.stats().reused
    engine.generate(Request("on", (*LONG.input_ids, *made), 2))
    assert engine.stats().reused - before == len(LONG.input_ids) + len(made) - 1


def test_cancelling_twice_or_late_does_nothing(engine: ReferenceEngine) -> None:
    taker = Taker()
    ticket = engine.submit(Request("r", (1, 2), 2), taker)
    assert taker.last.wait(30)
    ticket.cancel()
    ticket.cancel()
    engine.generate(Request("r", (1, 2), 2))
    assert (taker.reason, len(taker.updates)) == ("length", 2)


def test_close_ends_running_and_waiting_requests(folders: dict[str, Path]) -> None:
    engine = open_engine(folders["target"])
    takers = [Taker() for _ in range(6)]
    for taker in takers:
        engine.submit(LONG, taker)
    assert takers[0].first.wait(30)
    engine.close()
    assert all(taker.last.is_set() for taker in takers)
    assert {taker.reason for taker in takers} <= {"cancelled", "length"}
    assert not engine._thread.is_alive()
    engine.close()
    with pytest.raises(RuntimeError, match="the engine is closed"):
        engine.submit(LONG, Taker())


def test_close_from_a_callback_does_not_hang(folders: dict[str, Path]) -> None:
    engine = open_engine(folders["target"])
    engine.submit(LONG, lambda update: engine.close())
    engine._thread.join(30)
    assert not engine._thread.is_alive()


def test_a_failed_step_ends_its_requests_and_not_the_engine(
    engine: ReferenceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(engine._core, "step", lambda feeds: 1 / 0)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            engine.generate(Request("r", (1, 2, 3), 4))
    again = engine.generate(Request("r", (1, 2, 3), 4))
    assert again.finish_reason == "length"
    assert engine.stats().reused == 0, "a cache that a failed step touched is not trusted"


def test_a_failing_callback_takes_only_its_own_request_down(engine: ReferenceEngine) -> None:
    calls = []

    def fail(update: Update) -> None:
        calls.append(update)
        raise ValueError("the caller's fault")

    other = Taker()
    engine.submit(LONG, fail)
    engine.submit(Request("r", (4, 5, 6), 20), other)
    assert other.last.wait(30)
    assert other.reason == "length"
    assert [update.finish_reason for update in calls] == ["", "cancelled"]


def test_requests_submitted_from_a_callback_run(engine: ReferenceEngine) -> None:
    second = Taker()

    def chain(update: Update) -> None:
        if update.finished:
            engine.submit(Request("second", (7, 8), 3), second)

    engine.submit(Request("first", (1, 2), 2), chain)
    assert second.last.wait(30)
    assert second.reason == "length"
