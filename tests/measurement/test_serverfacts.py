"""What listens at an address may be anything; that it is no server is one line."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from trtspec.errors import ServingError
from trtspec.measurement.serverfacts import over_http


@pytest.fixture(params=[b"\x00\x00\x12\x04\x00\x00\x00", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<htm>"])
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    """A port where another protocol (gRPC's first bytes), or a page that is no JSON, is spoken."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(request.param)
            except OSError:
                return  # closed: the test is over

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_a_stranger_over_http(stranger: str) -> None:
    pytest.importorskip("tritonclient.http")
    with pytest.raises(ServingError, match="does not say what it is"):
        over_http(stranger, ["ensemble"])
