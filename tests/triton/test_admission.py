"""Who is worked on, who waits, who is turned away; and when drafting pauses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.processes import eventually

Modules = dict[str, ModuleType]


class Kitchen:
    """Work that begins when told to and ends when told to."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.done: list[Any] = []
        self.gates: dict[Any, threading.Event] = {}
        self.superseded: BaseException | None = None

    def work(self, request: Any) -> Callable[[], None]:
        self.begun.append(request)
        first = self.begun.count(request) == 1
        assert self.gates.setdefault(request, threading.Event()).wait(5)
        if request == "stuck" and first and self.superseded:
            raise self.superseded
        return lambda: self.done.append(request)

    def finish(self, *requests: Any) -> None:
        for request in requests:
            self.gates.setdefault(request, threading.Event()).set()


@pytest.fixture
def kitchen() -> Kitchen:
    return Kitchen()


def test_as_many_as_allowed_at_once_and_the_rest_in_order(bls: Modules, kitchen: Kitchen) -> None:
    admission = bls["admission"].Admission(2, 10, kitchen.work)
    for name in "abcd":
        admission.submit(name)
    assert eventually(lambda: len(kitchen.begun) == 2)
    assert (admission.running, admission.waiting, admission.in_flight) == (2, 2, 4)
    assert set(kitchen.begun) == {"a", "b"}
    kitchen.finish("b")
    assert eventually(lambda: kitchen.begun[2:] == ["c"])
    kitchen.finish("a", "c", "d")
    assert eventually(lambda: sorted(kitchen.done) == ["a", "b", "c", "d"])
    assert admission.close(5)


def test_a_slow_request_holds_up_nobody_while_there_is_a_place(bls: Modules, kitchen: Kitchen) -> None:
    admission = bls["admission"].Admission(2, 10, kitchen.work)
    kitchen.finish(*range(20))
    admission.submit("slow")
    for i in range(20):
        while admission.in_flight > 5:
            threading.Event().wait(0.001)
        admission.submit(i)
    assert eventually(lambda: kitchen.done == list(range(20)))
    kitchen.finish("slow")
    assert admission.close(5)


def test_more_than_fits_is_turned_away_in_one_line(bls: Modules, kitchen: Kitchen) -> None:
    admission = bls["admission"].Admission(1, 1, kitchen.work)
    admission.submit("a")
    admission.submit("b")
    assert eventually(lambda: admission.running == 1)
    with pytest.raises(bls["admission"].Overloaded, match=r"^overloaded: 1 requests are being answered and 1 wait"):
        admission.submit("c")
    kitchen.finish("a")
    assert eventually(lambda: kitchen.begun == ["a", "b"])
    admission.submit("d")
    kitchen.finish("b", "d")
    assert admission.close(5)


def test_one_that_waits_can_leave_and_makes_room(bls: Modules, kitchen: Kitchen) -> None:
    admission = bls["admission"].Admission(1, 1, kitchen.work)
    admission.submit("a")
    assert eventually(lambda: admission.running == 1)
    admission.submit("b")
    assert admission.withdraw("b")
    assert not admission.withdraw("b")
    assert not admission.withdraw("a")
    admission.submit("c")
    kitchen.finish("a", "c")
    assert admission.close(5)
    assert kitchen.begun == ["a", "c"]


def test_a_place_is_free_before_the_client_hears_the_end(bls: Modules) -> None:
    """Or a client's next request would find its own last one still in flight."""
    seen: list[int] = []
    admission = bls["admission"].Admission(1, 1, lambda _: lambda: seen.append(admission.in_flight))
    admission.submit("a")
    assert eventually(lambda: seen == [0])
    assert admission.close(5)


def test_a_thread_that_hangs_is_replaced_and_its_place_counts_once(bls: Modules, kitchen: Kitchen) -> None:
    kitchen.superseded = bls["calls"].Superseded()
    admission = bls["admission"].Admission(1, 5, kitchen.work)
    admission.submit("stuck")
    assert eventually(lambda: kitchen.begun == ["stuck"])
    admission.submit("next")
    admission.replace("stuck")
    assert eventually(lambda: kitchen.begun == ["stuck", "stuck"])
    assert (admission.running, admission.waiting) == (1, 1)
    kitchen.finish("stuck", "next")
    assert eventually(lambda: kitchen.done == ["stuck", "next"])
    assert admission.close(5)
    assert admission.running == 0


def test_the_end_waits_for_what_runs_but_not_for_ever(bls: Modules, kitchen: Kitchen) -> None:
    admission = bls["admission"].Admission(1, 5, kitchen.work)
    admission.submit("a")
    assert not admission.close(0.05)
    with pytest.raises(bls["admission"].Overloaded, match="going away"):
        admission.submit("b")
    kitchen.finish("a")
    assert admission.close(5)


def test_a_last_response_that_cannot_be_sent_ends_no_thread(bls: Modules) -> None:
    done: list[Any] = []

    def work(request: Any) -> Callable[[], None]:
        return (lambda: 1 / 0) if request == "bad" else lambda: done.append(request)  # type: ignore[return-value]

    admission = bls["admission"].Admission(1, 5, work)
    admission.submit("bad")
    admission.submit("good")
    assert eventually(lambda: done == ["good"])
    assert admission.close(5)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _open(breaker: Any) -> None:
    began = [breaker.failed("draft-failed") for _ in range(breaker.FAILURES)]
    assert began == [False] * (breaker.FAILURES - 1) + [True]


def test_drafting_pauses_after_failures_in_a_row_only(bls: Modules, clock: Clock) -> None:
    breaker = bls["admission"].Breaker(clock=clock)
    for _ in range(10):
        breaker.failed("draft-failed")
        breaker.succeeded()
    assert breaker.refuses() == ""
    _open(breaker)
    assert breaker.refuses() == "draft-failed"


def test_after_the_pause_one_tries_and_the_others_wait_for_it(bls: Modules, clock: Clock) -> None:
    breaker = bls["admission"].Breaker(clock=clock)
    _open(breaker)
    clock.now += breaker.PAUSE
    assert [breaker.refuses() for _ in range(3)] == ["", "draft-failed", "draft-failed"]
    assert breaker.succeeded()
    assert [breaker.refuses() for _ in range(3)] == ["", "", ""]
    assert not breaker.succeeded()


def test_pauses_grow_while_the_tries_fail_and_start_small_again(bls: Modules, clock: Clock) -> None:
    breaker = bls["admission"].Breaker(clock=clock)
    _open(breaker)
    pauses = []
    for _ in range(6):
        began = clock.now
        while breaker.refuses():
            clock.now += 1.0
        pauses.append(clock.now - began)
        assert not breaker.failed("draft-slow")
    assert pauses == [5, 10, 20, 40, 60, 60]
    assert breaker.refuses() == "draft-slow"
    breaker.succeeded()
    _open(breaker)
    clock.now += breaker.PAUSE
    assert breaker.refuses() == ""


def test_late_failures_of_calls_from_before_lengthen_nothing(bls: Modules, clock: Clock) -> None:
    breaker = bls["admission"].Breaker(clock=clock)
    _open(breaker)
    for _ in range(20):
        assert not breaker.failed("draft-failed")
    clock.now += breaker.PAUSE
    assert breaker.refuses() == ""


def test_a_try_that_is_never_heard_of_again_is_followed_by_another(bls: Modules, clock: Clock) -> None:
    breaker = bls["admission"].Breaker(clock=clock)
    _open(breaker)
    clock.now += breaker.PAUSE
    assert breaker.refuses() == ""
    assert breaker.refuses() != ""
    clock.now += breaker.PAUSE
    assert breaker.refuses() == ""


def test_too_many_hanging_calls_end_the_tries_until_one_returns(bls: Modules, clock: Clock) -> None:
    breaker = bls["admission"].Breaker(2, clock=clock)
    _open(breaker)
    # Said once: with the last one that may hang.
    assert [breaker.hangs(1), breaker.hangs(1), breaker.hangs(1), breaker.hangs(-1)] == [False, True, False, False]
    clock.now += 1000
    assert breaker.refuses() == "draft-failed"
    breaker.hangs(-1)
    assert breaker.refuses() == ""
