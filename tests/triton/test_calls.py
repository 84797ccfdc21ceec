"""Calls of other models, and the watch over clients that leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.triton import fakepb
from tests.triton.fakepb import Tensors
from tests.triton.modelfolder import load


class Client:
    """A sender whose client leaves when told."""

    def __init__(self) -> None:
        self.gone = False
        self.asked = 0

    def is_cancelled(self) -> bool:
        self.asked += 1
        return self.gone


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def _modules(repository: Path, handler: fakepb.Handler) -> dict[str, ModuleType]:
    return load(repository / "tensorrt_llm_bls", handler)


def _caller(calls: Any, name: str, spent: Any = None, ended: Any = None) -> Any:
    models = calls.ServedModels(spent or calls.Spent())
    return calls.Caller(name, models, ended or (lambda *_: None))


def _watch(modules: dict[str, ModuleType], **how: Any) -> Any:
    """A watch that finds no call slow and tells nobody."""
    told: dict[str, Any] = {"slow": lambda *_: False, "left": lambda _: None, "stuck": lambda *_: None}
    return modules["watch"].Watch(modules["calls"].Spent(), **(told | how))


def test_a_finished_answer_is_kept_until_the_server_has_answered_a_question(bls: dict[str, ModuleType]) -> None:
    """The order is the point: kept, asked, released; a cancellation that is known already proves nothing."""
    spent, client = bls["calls"].Spent(), Client()
    freed: list[str] = []

    class Iterator_:
        def __init__(self, name: str) -> None:
            self._name = name

        def __del__(self) -> None:
            freed.append(self._name)

    spent.keep(Iterator_("first"))
    client.gone = True
    assert spent.is_cancelled(client)
    assert freed == []
    client.gone = False
    assert not spent.is_cancelled(client)
    assert freed == ["first"]


def test_what_is_kept_while_the_question_is_out_stays(bls: dict[str, ModuleType]) -> None:
    spent = bls["calls"].Spent()
    late = object()

    class Asking:
        def is_cancelled(self) -> bool:
            spent.keep(late)
            return False

    spent.is_cancelled(Asking())
    assert spent._iterators == [late]


def test_every_decoupled_call_is_kept_even_when_it_fails(repository: Path) -> None:
    def handler(*_: Any) -> Iterator[Tensors | Exception]:
        yield RuntimeError("no")

    calls = _modules(repository, handler)["calls"]
    spent = calls.Spent()
    caller = _caller(calls, "id", spent)
    with pytest.raises(calls.CallFailed, match=r"^no$"):
        caller.decoupled("m", {}, ["x"])
    assert len(spent._iterators) == 1
    with pytest.raises(calls.CallFailed, match=r"^no$"):
        caller.plain("m", {}, ["x"])
    assert len(spent._iterators) == 1


def test_an_answer_is_a_copy(repository: Path) -> None:
    shared = np.array([[1]], dtype=np.int32)

    def handler(*_: Any) -> Iterator[Tensors | Exception]:
        yield {"x": shared}

    calls = _modules(repository, handler)["calls"]
    found = _caller(calls, "id").decoupled("m", {}, ["x", "absent"])
    shared[0, 0] = 2
    assert list(found) == ["x"]
    assert found["x"].item() == 1


class Hanging:
    """Models whose calls last until they are stopped, or for ever (until released)."""

    def __init__(self, obedient: bool = True) -> None:
        self.working, self.release = threading.Event(), threading.Event()
        self.stopped: list[tuple[str, str]] = []
        self._obedient = obedient

    def __call__(self, model: str, request_id: str, tensors: Tensors) -> Iterator[Tensors | Exception]:
        if "stop" in tensors:
            self.stopped.append((model, request_id))
            if self._obedient:
                self.release.set()
            yield {}
        else:
            self.working.set()
            assert self.release.wait(5)
            yield RuntimeError("cancelled")


def test_leaving_stops_the_call_in_progress_and_only_that(repository: Path) -> None:
    models = Hanging()
    modules = _modules(repository, models)
    calls, left = modules["calls"], []
    guard = _watch(modules, left=left.append)
    clients = [Client(), Client()]
    watched = [modules["watch"].Watched(c, _caller(calls, f"id{i}")) for i, c in enumerate(clients)]
    for each in watched:
        guard.add(each)

    def call() -> None:
        with pytest.raises(calls.CallFailed, match="cancelled"):
            watched[0].caller.decoupled("slow", {}, ["x"])

    thread = threading.Thread(target=call)
    thread.start()
    assert models.working.wait(5)
    clients[0].gone = True
    _until(lambda: models.stopped and left)
    thread.join()
    assert models.stopped == [("slow", "id0")]
    assert (watched[0].over, watched[1].over) == ("cancelled", "")
    assert set(left) == {watched[0]}
    guard.close()


def test_the_deadline_stops_the_call_without_asking_the_client(repository: Path) -> None:
    models = Hanging()
    modules = _modules(repository, models)
    calls, client = modules["calls"], Client()
    guard = _watch(modules)
    watched = modules["watch"].Watched(client, _caller(calls, "id"), timeout=0.01)
    guard.add(watched)
    with pytest.raises(calls.CallFailed, match="cancelled"):
        watched.caller.decoupled("target", {}, ["x"])
    assert watched.over == "deadline"
    assert models.stopped == [("target", "id")]
    guard.close()


def test_a_slow_call_is_stopped_and_counts_as_slow(repository: Path) -> None:
    models = Hanging()
    modules = _modules(repository, models)
    calls, ended = modules["calls"], []
    guard = _watch(modules, slow=lambda call, now: call.model == "draft" and now - call.began > 0.05)
    watched = modules["watch"].Watched(Client(), _caller(calls, "id", ended=lambda *what: ended.append(what)))
    guard.add(watched)
    with pytest.raises(calls.CallSlow, match=r"^model draft took 0\.\d s$") as caught:
        watched.caller.decoupled("draft", {}, ["x"])
    assert caught.value.mode == "draft-slow"
    assert watched.over == ""
    assert [(call.slow, failure.mode) for call, failure in ended] == [(True, "draft-slow")]
    guard.close()


@pytest.mark.parametrize("plain", [False, True])
def test_a_call_that_does_not_stop_is_given_up(repository: Path, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    models = Hanging(obedient=False)
    modules = _modules(repository, models)
    monkeypatch.setattr(modules["watch"], "GRACE", 0.05)
    calls, stuck, ended, superseded = modules["calls"], [], [], []
    guard = _watch(modules, slow=lambda *_: True, stuck=lambda *what: stuck.append(what))
    watched = modules["watch"].Watched(Client(), _caller(calls, "id", ended=lambda call, _: ended.append(call)))
    guard.add(watched)

    def call() -> None:
        try:
            (watched.caller.plain if plain else watched.caller.decoupled)("m", {}, ["x"])
        except calls.Superseded:
            superseded.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    _until(lambda: stuck)
    assert [(who, call.model) for who, call in stuck] == [(watched, "m")]
    assert watched.caller.call is None  # the next thread may call
    assert ended == []
    models.release.set()
    thread.join()
    assert superseded == [True]
    assert [call.given_up for call in ended] == [True]
    assert models.stopped == ([] if plain else [("m", "id")])
    guard.close()


def test_a_call_that_has_returned_cannot_be_given_up(bls: dict[str, ModuleType]) -> None:
    calls = bls["calls"]
    caller = _caller(calls, "id")
    old = calls.Call("m", stoppable=True)
    assert not caller.give_up(old)
    caller.stop(old)
    assert old.stopped is None


def test_stop_requests_of_a_dead_model_keep_one_thread_and_no_other_model(repository: Path) -> None:
    heard: list[tuple[str, str]] = []
    for_ever = threading.Event()

    def handler(model: str, request_id: str, _: Tensors) -> Iterator[Tensors | Exception]:
        heard.append((model, request_id))
        assert for_ever.wait(5) if model == "dead" else True
        yield {}

    calls = _modules(repository, handler)["calls"]
    models = calls.ServedModels(calls.Spent())
    for name in ("a", "b", "c"):
        models.stop(name, "dead")
    models.stop("d", "alive")
    _until(lambda: len(heard) == 2)
    assert set(heard) == {("dead", "a"), ("alive", "d")}
    for_ever.set()
    _until(lambda: heard[2:] == [("dead", "b"), ("dead", "c")])


@pytest.mark.parametrize(
    ("message", "mode"),
    [
        ("Failed for execute the inference request. Model 'tensorrt_llm_draft' is not ready.", "no-draft-model"),
        ("Request for unknown model: 'tensorrt_llm_draft' is not found", "no-draft-model"),
        ("out of memory", "draft-failed"),
    ],
)
def test_a_model_that_is_not_there_has_a_name_of_its_own(repository: Path, message: str, mode: str) -> None:
    calls = _modules(repository, lambda *_: iter([RuntimeError(message)]))["calls"]
    with pytest.raises(calls.CallFailed) as caught:
        _caller(calls, "id").decoupled("tensorrt_llm_draft", {}, ["x"])
    assert caught.value.mode == mode


def test_nobody_is_asked_about_after_the_end(repository: Path) -> None:
    modules = _modules(repository, lambda *_: iter(()))
    watch, client = modules["watch"], Client()
    guard = _watch(modules)
    watched = watch.Watched(client, _caller(modules["calls"], "id"))
    guard.add(watched)
    _until(lambda: client.asked)
    guard.remove(watched)
    asked = client.asked
    client.gone = True
    time.sleep(2 * watch.PERIOD)
    assert client.asked == asked
    watched.look(modules["calls"].Spent(), time.monotonic(), lambda *_: False)
    assert not watched.over
    guard.close()


def test_those_that_wait_are_asked_about_less_often(repository: Path) -> None:
    modules = _modules(repository, lambda *_: iter(()))
    watch, clients = modules["watch"], [Client(), Client()]
    spent, now = modules["calls"].Spent(), time.monotonic()
    running, waiting = (watch.Watched(client, _caller(modules["calls"], "id")) for client in clients)
    waiting.waiting = True
    for step in range(10):
        for each in (running, waiting):
            each.look(spent, now + step * watch.PERIOD, lambda *_: False)
    assert clients[0].asked == 10
    assert clients[1].asked == 2


def test_one_that_cannot_be_asked_about_does_not_end_the_watch(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = _modules(repository, lambda *_: iter(()))
    left: list[Any] = []
    guard = _watch(modules, left=left.append)
    broken, whole = Client(), Client()
    broken.is_cancelled = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    watched = [modules["watch"].Watched(c, _caller(modules["calls"], "id")) for c in (broken, whole)]
    for each in watched:
        guard.add(each)
    _until(lambda: whole.asked > 1)
    whole.gone = True
    _until(lambda: left)
    assert set(left) == {watched[1]}
    guard.close()
    assert "ZeroDivisionError" in capsys.readouterr().err
