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
    caller = calls.Caller("id", spent)
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
    found = calls.Caller("id", calls.Spent()).decoupled("m", {}, ["x", "absent"])
    shared[0, 0] = 2
    assert list(found) == ["x"]
    assert found["x"].item() == 1


def test_leaving_stops_the_call_in_progress_and_only_that(repository: Path) -> None:
    stopped: list[tuple[str, str]] = []
    working, release = threading.Event(), threading.Event()

    def handler(model: str, request_id: str, tensors: Tensors) -> Iterator[Tensors | Exception]:
        if "stop" in tensors:
            stopped.append((model, request_id))
            release.set()
        else:
            working.set()
            assert release.wait(5)
            yield RuntimeError("cancelled")

    modules = _modules(repository, handler)
    calls, watch = modules["calls"], modules["watch"]
    guard = watch.Watch(calls.Spent())
    clients = [Client(), Client()]
    watched = [watch.Watched(client, calls.Caller(f"id{i}", calls.Spent())) for i, client in enumerate(clients)]
    for each in watched:
        guard.add(each)

    def call() -> None:
        with pytest.raises(calls.CallFailed):
            watched[0].caller.decoupled("slow", {}, ["x"])

    thread = threading.Thread(target=call)
    thread.start()
    assert working.wait(5)
    clients[0].gone = True
    _until(lambda: stopped)
    thread.join()
    assert stopped == [("slow", "id0")]
    assert (watched[0].cancelled, watched[1].cancelled) == (True, False)
    guard.close()


def test_nobody_is_asked_about_after_the_end(repository: Path) -> None:
    modules = _modules(repository, lambda *_: iter(()))
    watch = modules["watch"]
    guard, client = watch.Watch(modules["calls"].Spent()), Client()
    watched = watch.Watched(client, modules["calls"].Caller("id", modules["calls"].Spent()))
    guard.add(watched)
    _until(lambda: client.asked)
    guard.remove(watched)
    asked = client.asked
    client.gone = True
    time.sleep(2 * watch.PERIOD)
    assert client.asked == asked
    watched.look(modules["calls"].Spent())
    assert not watched.cancelled
    guard.close()
