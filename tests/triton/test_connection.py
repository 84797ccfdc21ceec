"""When a stream is closed: not by us before the server has ended it, and not never."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc
import pytest
from tritonclient.grpc import service_pb2

from trtspec.triton import connection
from trtspec.triton.connection import Connection, Exchange
from trtspec.triton.failures import RequestError

REFUSED = service_pb2.ModelStreamInferResponse(error_message="max_tokens is 0")


class Cancelled(grpc.RpcError):  # type: ignore[misc]
    def code(self) -> Any:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return "cancelled by us"


class Call:
    """A stream with one response, which ends by itself after so many seconds, or when it is cancelled."""

    def __init__(self, ends_after: float | None) -> None:
        self.cancelled = threading.Event()
        self.cancelled_early = False
        self.ended = False
        self._ends_after = ends_after
        self._callbacks: list[Callable[[], None]] = []

    def __iter__(self) -> Iterator[Any]:
        yield REFUSED
        if self.cancelled.wait(self._ends_after):
            raise Cancelled
        self.ended = True
        for callback in self._callbacks:
            callback()

    def cancel(self) -> None:
        self.cancelled_early = self.cancelled_early or not self.ended
        self.cancelled.set()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return True


def answer(call: Call) -> list[Any]:
    with Exchange(cast(Connection, Connection("127.0.0.1:1")), call, "pair", 60.0) as exchange:
        return list(exchange)


def test_a_refused_request_is_left_when_the_server_has_ended_it() -> None:
    call = Call(ends_after=0.05)
    with pytest.raises(RequestError, match="max_tokens is 0"):
        answer(call)
    assert call.ended
    assert not call.cancelled_early


def test_a_server_that_never_ends_a_refused_request_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER", 0.05)
    call = Call(ends_after=None)
    began = time.monotonic()
    with pytest.raises(RequestError, match="max_tokens is 0"):
        answer(call)
    assert call.cancelled_early
    assert time.monotonic() - began < 20
