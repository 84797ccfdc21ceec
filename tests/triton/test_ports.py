"""Ports: refused by name before anything starts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.triton.throwaway import serving
from trtspec.errors import ConfigError, MissingError
from trtspec.triton.ports import reserve


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def test_free_ports_are_different_and_free() -> None:
    ports = reserve(serving())
    numbers = {ports.http, ports.grpc, ports.metrics}
    assert len(numbers) == 3
    assert ports.chosen
    for number in numbers:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", number))


def test_a_given_port_is_kept() -> None:
    free = reserve(serving())
    ports = reserve(serving(http_port=free.http, grpc_port=free.grpc, metrics_port=free.metrics))
    assert (ports.http, ports.grpc, ports.metrics, ports.chosen) == (free.http, free.grpc, free.metrics, False)


@pytest.mark.parametrize("key", ["http_port", "grpc_port", "metrics_port"])
def test_a_port_in_use_is_named_with_its_key(taken: socket.socket, key: str) -> None:
    number = taken.getsockname()[1]
    with pytest.raises(MissingError) as caught:
        reserve(serving(**{key: number}))
    assert f"serving.{key}: port {number} is in use" in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_port_in_use_on_every_address_is_in_use_here() -> None:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        with pytest.raises(MissingError, match="in use"):
            reserve(serving(http_port=listener.getsockname()[1]))


def test_a_dying_server_is_given_time(taken: socket.socket) -> None:
    number = taken.getsockname()[1]
    threading.Timer(0.3, taken.close).start()
    assert reserve(serving(grpc_port=number), patience=10.0).grpc == number


def test_two_keys_with_one_port() -> None:
    with pytest.raises(ConfigError, match=r"serving.http_port and serving.metrics_port are the same port.*found 9123"):
        reserve(serving(http_port=9123, metrics_port=9123))


def test_an_address_of_another_machine() -> None:
    with pytest.raises(ConfigError, match=r"serving.host: .*found 192\.0\.2\.1"):
        reserve(serving(host="192.0.2.1"))
