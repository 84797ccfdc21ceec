"""The HTTP side: ready or not, the index, the metrics."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.triton.throwaway import serving
from trtspec.errors import ServingError
from trtspec.triton import health
from trtspec.triton.ports import reserve


@pytest.fixture
def answers() -> dict[str, tuple[int, str]]:
    return {}


@pytest.fixture
def port(answers: dict[str, tuple[int, str]]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            status, body = answers.get(self.path, (404, ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(("status", "expected"), [(200, True), (400, False), (503, False)])
def test_ready_is_a_200(answers: dict[str, tuple[int, str]], port: int, status: int, expected: bool) -> None:
    answers["/v2/health/ready"] = (status, "")
    assert health.ready("127.0.0.1", port) is expected


def test_nobody_listening_is_not_ready_and_has_no_models() -> None:
    port = reserve(serving()).http
    assert not health.ready("127.0.0.1", port)
    with pytest.raises(ServingError, match="no repository index"):
        health.models("127.0.0.1", port)
    with pytest.raises(ServingError, match="no metrics"):
        health.metrics("127.0.0.1", port)


def test_a_proxy_in_the_environment_is_not_used(
    answers: dict[str, tuple[int, str]], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    answers["/v2/health/ready"] = (200, "")
    assert health.ready("127.0.0.1", port)


def test_the_index(answers: dict[str, tuple[int, str]], port: int) -> None:
    entries = [{"name": "a", "version": "1", "state": "READY"}, {"name": "b", "state": "UNAVAILABLE", "reason": "why"}]
    answers["/v2/repository/index"] = (200, json.dumps([*entries, {"name": "c"}]))
    assert health.models("127.0.0.1", port) == [
        health.Model("a", "READY", ""),
        health.Model("b", "UNAVAILABLE", "why"),
        health.Model("c", "UNAVAILABLE", ""),
    ]


@pytest.mark.parametrize("body", ["", "no json", '{"error": "x"}', "[1]"])
def test_an_index_that_is_none(answers: dict[str, tuple[int, str]], port: int, body: str) -> None:
    answers["/v2/repository/index"] = (200, body)
    with pytest.raises(ServingError, match="no repository index"):
        health.models("127.0.0.1", port)


def test_metrics_are_keyed_by_name_and_sorted_labels() -> None:
    text = """# HELP a what
# TYPE a counter
a{version="1",model="m \\"x\\", y"} 3
a{model="n",version="1"} 4.5
b 1e+06
c{le="+Inf"} NaN
"""
    samples = health.parse_metrics(text)
    assert samples["a"] == {(("model", 'm \\"x\\", y'), ("version", "1")): 3.0, (("model", "n"), ("version", "1")): 4.5}
    assert samples["b"] == {(): 1_000_000.0}
    assert samples["c"].keys() == {(("le", "+Inf"),)}
    assert "#" not in "".join(samples)
