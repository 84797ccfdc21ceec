"""Ask the generated models over HTTP: Triton's /generate and /generate_stream, without what they hide.

Triton takes an unknown input for a parameter, answers a failure with status 200 and an `error` in the body, and says
a late one as an event of a stream. Here the first is refused, and the others are errors.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trtspec.triton.answer import TIMEOUT, PairClient, Retry
from trtspec.triton.connection import CALL_TIMEOUT, ModelInfo
from trtspec.triton.failures import RequestError, told, too_late, unreachable
from trtspec.triton.generation import Array, GenerateRequest

POLL = 0.1
READ = 1 << 16
_EVENT = b"data:"


class HttpClient(PairClient):
    """A client for one server, over HTTP; any number of threads may share it. Each request has its own connection."""

    def __init__(self, http_url: str, timeout: float = TIMEOUT, retry: Retry | None = None) -> None:
        super().__init__(timeout, retry)
        self.url = http_url.removeprefix("http://").rstrip("/")
        self._info = functools.lru_cache(maxsize=None)(self._ask_model)
        self._open: set[HttpExchange] = set()
        self._lock = threading.Lock()

    def ready(self) -> bool:
        """Whether the server is ready; false also when it cannot be reached."""
        try:
            return self._get("/v2/health/ready")[0] == http.client.OK
        except RequestError:
            return False

    def close(self) -> None:
        """Cancel every running request."""
        with self._lock:
            running = list(self._open)
        for exchange in running:
            exchange.cancel()

    def __enter__(self) -> HttpClient:
        return self

    def _await_listener(self) -> None:
        deadline = time.monotonic() + self._retry.connecting
        while self._retry.connecting:
            try:
                socket.create_connection(address(self.url), CALL_TIMEOUT).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise unreachable(self.url, error.strerror or error) from None
                time.sleep(POLL)

    def _model_info(self, model: str) -> ModelInfo:
        return self._info(model)

    def _ask_model(self, name: str) -> ModelInfo:
        status, body = self._get(f"/v2/models/{name}")
        data = read_json(body, self.url)
        if status != http.client.OK or "error" in data:
            raise RequestError(f"the server has no model {name}", "refused", where=self.url, found=data.get("error"))
        inputs, outputs = (frozenset(t["name"] for t in data.get(kind, ())) for kind in ("inputs", "outputs"))
        return ModelInfo(name, inputs, outputs)

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*address(self.url), timeout=CALL_TIMEOUT)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            raise too_late(self.url, CALL_TIMEOUT) from None
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self.url, getattr(error, "strerror", None) or repr(error)) from None
        finally:
            connection.close()

    def _once(self, model: str, tensors: dict[str, Array]) -> dict[str, Array]:
        (answer,) = HttpExchange(self.url, model, body_of(tensors), self._timeout, stream=False)
        return answer

    def _send(self, model: str, tensors: dict[str, Array], request: GenerateRequest) -> HttpExchange:
        body = body_of(tensors) | {"id": request.request_id}
        if request.timeout is not None:
            body["timeout"] = max(1, int(request.timeout * 1e6))  # Triton counts microseconds
        exchange = HttpExchange(self.url, model, body, request.timeout, request.stream, self._forget)
        with self._lock:
            self._open.add(exchange)
        return exchange

    def _forget(self, exchange: HttpExchange) -> None:
        with self._lock:
            self._open.discard(exchange)


class HttpExchange:
    """One request and its responses, each a mapping of tensor name to array; the connection is closed at the end."""

    def __init__(
        self, url: str, model: str, body: dict[str, Any], timeout: float | None, stream: bool, forget: Any = None
    ) -> None:
        self._url, self._model, self._body, self._stream = url, model, body, stream
        self._timeout, self._forget = timeout, forget
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._connection = http.client.HTTPConnection(*address(url), timeout=timeout)
        self._cancelled = False

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Responses that carry tensors; RequestError on any failure, whatever the status and however late."""
        where = f"{self._url}, model {self._model}"
        try:
            self._connect()
            answer = self._post()
            for data in self._events(answer) if self._stream else [read_json(self._read(answer), where)]:
                if "error" in data:
                    raise told(str(data["error"]), f"model {self._model}")
                yield arrays_of(data)
        except RequestError:
            raise
        except TimeoutError:
            raise too_late(where, self._timeout) from None
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            # A closed socket fails in many ways, even as an attribute of None.
            if self._cancelled:
                raise RequestError("the request was cancelled", "cancelled", where=where) from None
            raise RequestError(f"the connection broke: {error!r}", "unreachable", where=where) from None
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Give the request up by closing its connection; any thread may."""
        self._cancelled = True
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):  # the server was quicker
                sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
        self._connection.close()
        if self._forget is not None:
            self._forget(self)

    def _connect(self) -> None:
        try:
            self._connection.connect()
        except OSError as error:
            raise unreachable(self._url, error.strerror or error) from None

    def _post(self) -> http.client.HTTPResponse:
        verb = "generate_stream" if self._stream else "generate"
        path = f"/v2/models/{self._model}/{verb}"
        self._connection.request("POST", path, json.dumps(self._body), {"Content-Type": "application/json"})
        self._wait_no_longer()
        return self._connection.getresponse()

    def _events(self, answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
        if answer.status != http.client.OK:
            # Not an event yet: the body says why.
            yield {"error": read_json(self._read(answer).removeprefix(_EVENT), self._url).get("error", answer.reason)}
            return
        for line in self._lines(answer):
            if line.startswith(_EVENT):
                yield read_json(line.removeprefix(_EVENT), self._url)

    def _lines(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        """Not by `readline`, which takes a connection that broke for the end."""
        rest = b""
        while data := self._some(answer):
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
        if answer.length:
            raise http.client.IncompleteRead(rest, answer.length)
        yield rest

    def _some(self, answer: http.client.HTTPResponse) -> bytes:
        self._wait_no_longer()
        return answer.read1(READ)

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        self._wait_no_longer()
        return answer.read()

    def _wait_no_longer(self) -> None:
        """What is left of the patience is that of the next read."""
        if self._deadline is not None and self._connection.sock is not None:
            left = self._deadline - time.monotonic()
            if left <= 0.0:
                raise TimeoutError
            self._connection.sock.settimeout(left)


def address(url: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, _, port = url.rpartition(":")
    if not host or not port.isdigit():
        raise RequestError("not an address", "refused", where=url, expected="host:port")
    return host.strip("[]"), int(port)


def body_of(tensors: Mapping[str, Array]) -> dict[str, Any]:
    """What /generate takes: a scalar, or a list where a tensor has several elements or is one of words."""
    return {name: _plain(array) for name, array in tensors.items()}


def arrays_of(data: Mapping[str, Any]) -> dict[str, Array]:
    """Tensors of an answer: /generate unwraps single elements and flattens the rest."""
    found = {name: _array(value) for name, value in data.items()}
    histogram = found.get("spec_histogram")
    if histogram is not None:
        side = int((histogram.size // 2) ** 0.5)
        found["spec_histogram"] = histogram.reshape(2, side, side)
    return found


def read_json(body: bytes, where: str) -> dict[str, Any]:
    """A JSON object; RequestError for anything else, such as the page of a proxy."""
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        shown = body[:80].decode("utf-8", "replace")
        raise RequestError("the answer is no JSON object", where=where, found=repr(shown), expected="Triton's answer")
    return data


def _plain(array: Array) -> Any:
    words = [v.decode() if isinstance(v, bytes) else v for v in array.reshape(-1).tolist()]
    return words[0] if array.size == 1 else words


def _array(value: Any) -> Array:
    values = value if isinstance(value, list) else [value]
    if any(isinstance(v, str) for v in values):
        return np.array([v.encode() for v in values], dtype=np.object_)
    return np.array(values)
