"""The worker thread: idle, cancelled, failing, closing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from trtspec.backends.reference import Request, Update, open_engine, worker
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


def _idle(engine: ReferenceEngine) -> None:
    """A request's last update comes a moment before the worker has done with it."""
    while engine.stats().active or engine.stats().waiting:
        time.sleep(0.001)


def _alone(engine: ReferenceEngine) -> None:
    """As if no request had been here for a while."""
    _idle(engine)
    engine._ended = engine._crowded = 0.0


def test_a_short_lone_request_is_computed_by_the_caller(engine: ReferenceEngine) -> None:
    threads: set[str] = set()
    _alone(engine)
    request = Request("here", (1, 2, 3), 4)
    expected = engine.generate(request).ids
    for here in (True, False):
        _alone(engine)
        taker = Taker()

        def take(update: Update, taker: Taker = taker) -> None:
            threads.add(threading.current_thread().name)
            taker(update)

        engine.submit(request, take, here=here)
        if here:
            assert taker.last.is_set()
            assert threads == {threading.current_thread().name}
        assert taker.last.wait(30)
        assert tuple(token for update in taker.updates for token in update.new_ids) == expected
    assert "reference-engine" in threads


def test_what_the_caller_does_not_finish_the_worker_does(engine: ReferenceEngine) -> None:
    _alone(engine)
    taker = Taker()
    engine.submit(LONG, taker, here=True)
    assert taker.first.is_set()
    assert taker.last.wait(30)
    assert (taker.reason, len([t for u in taker.updates for t in u.new_ids])) == ("length", 100)


def test_requests_that_come_thickly_are_left_to_the_worker(
    engine: ReferenceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each would be computed by itself while the others wait to be taken."""
    long = 1e9
    monkeypatch.setattr(worker, "GAP", 0.0)
    monkeypatch.setattr(worker, "CROWD", long)
    _alone(engine)
    engine._crowded = -2 * long
    engine.generate(Request("r", (1, 2), 2))
    _idle(engine)
    assert engine._quiet(), "one after another"
    takers = [Taker() for _ in range(8)]
    for taker in takers:
        engine.submit(Request("r", (1, 2), 30), taker)
    assert all(taker.last.wait(30) for taker in takers)
    _idle(engine)
    assert not engine._quiet(), "several at once, not long ago"
    engine._crowded = -2 * long
    monkeypatch.setattr(worker, "GAP", long)
    assert not engine._quiet(), "one has just left"


def test_a_request_beside_one_that_a_caller_computes_waits_for_the_worker(
    engine: ReferenceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(engine, monkeypatch)
    _alone(engine)
    first, second = Taker(), Taker()
    caller = threading.Thread(target=lambda: engine.submit(Request("a", (1, 2), 3), first, here=True))
    caller.start()
    while not engine._helped:
        time.sleep(0.001)
    engine.submit(Request("b", (4, 5), 3), second, here=True)
    assert not second.first.is_set()
    held.go.set()
    assert first.last.wait(30)
    assert second.last.wait(30)
    caller.join(30)
    assert (first.reason, second.reason) == ("length", "length")


def test_closing_while_a_caller_computes(folders: dict[str, Path]) -> None:
    engine = open_engine(folders["target"])
    _alone(engine)
    taker = Taker()

    def close(update: Update) -> None:
        taker(update)
        if len(taker.updates) == 1:
            threading.Thread(target=engine.close).start()
            while not engine._closing:
                time.sleep(0.001)

    engine.submit(LONG, close, here=True)
    assert taker.last.wait(30)
    engine.close()
    assert taker.reason == "cancelled"
    assert not engine._thread.is_alive()


def test_each_worker_keeps_its_own_number_of_torch_threads(folders: dict[str, Path]) -> None:
    import torch

    found: dict[int, set[int]] = {1: set(), 2: set()}
    engines = {count: open_engine(folders["target"], threads=count) for count in found}
    try:
        for _ in range(2):
            for count, engine in engines.items():
                done = threading.Event()

                def take(update: Update, count: int = count, done: threading.Event = done) -> None:
                    found[count].add(torch.get_num_threads())
                    if update.finished:
                        done.set()

                engine.submit(Request("r", (1, 2), 2), take)
                assert done.wait(30)
    finally:
        for engine in engines.values():
            engine.close()
    assert found == {1: {1}, 2: {2}}
