"""One gRPC channel to a server, over the protocol that tritonclient ships.

Every request has a bidirectional stream of its own (`ModelStreamInfer`) whose sending half is closed at once: the
server ends the stream when the last response is out, so no open stream ever keeps it from stopping; a deadline and
a cancellation belong to one request; and any number of threads may share the channel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from trtspec.errors import ServingError
from trtspec.triton.failures import Kind, RequestError, told, too_late, unreachable
from trtspec.triton.serverlog import first_sentence

Tensors = Mapping[str, np.ndarray[Any, Any]]
# A proxy named in the environment has no business with this connection.
CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
]
CALL_TIMEOUT = 10.0
LINGER = 2.0
"""Seconds that a server has to end the stream of a request it has answered with an error."""


@dataclass(frozen=True)
class ModelInfo:
    """What a model declares: the names of its input and output tensors."""

    name: str
    inputs: frozenset[str]
    outputs: frozenset[str]


class Connection:
    """A channel and its stub. Thread-safe; :meth:`close` cancels what is still running."""

    def __init__(self, url: str) -> None:
        import grpc
        from tritonclient.grpc import service_pb2_grpc

        self.url = url
        self._channel = grpc.insecure_channel(url, options=CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._open: set[Exchange] = set()
        self._lock = threading.Lock()

    def ready(self) -> bool:
        """Whether the server is ready; false also when it cannot be reached."""
        from tritonclient.grpc import service_pb2

        try:
            return bool(self._ask(self._stub.ServerReady, service_pb2.ServerReadyRequest()).ready)
        except ServingError:
            return False

    def models(self) -> dict[str, str]:
        """State (READY, UNAVAILABLE, …) of each model in the server's repository."""
        from tritonclient.grpc import service_pb2

        index = self._ask(self._stub.RepositoryIndex, service_pb2.RepositoryIndexRequest())
        return {model.name: model.state or "UNAVAILABLE" for model in index.models}

    def model(self, name: str) -> ModelInfo:
        """Declared tensors of a model; RequestError naming the known ones if there is no such model."""
        from tritonclient.grpc import service_pb2

        states = self.models()
        if states.get(name) != "READY":
            known = ", ".join(sorted(n for n, state in states.items() if state == "READY")) or "none"
            what = f"model {name} is {states[name]}" if name in states else f"the server has no model {name}"
            kind: Kind = "failed" if name in states else "refused"
            raise RequestError(what, kind, where=self.url, expected=f"one of {known}")
        metadata = self._ask(self._stub.ModelMetadata, service_pb2.ModelMetadataRequest(name=name))
        return ModelInfo(name, frozenset(t.name for t in metadata.inputs), frozenset(t.name for t in metadata.outputs))

    def await_listener(self, patience: float) -> None:
        """Wait until somebody listens; nothing is sent, so this is safe to repeat. RequestError when nobody does."""
        import grpc

        try:
            grpc.channel_ready_future(self._channel).result(patience)
        except grpc.FutureTimeoutError:
            raise unreachable(self.url, f"nobody listened for {patience:g} s") from None

    def exchange(self, model: str, tensors: Tensors, request_id: str, timeout: float | None) -> Exchange:
        """Send one request; iterate over the result. `timeout` is seconds for the whole of it, told to the server too.

        Never repeated: once it is sent, only its sender knows whether it may be asked again.
        """
        request = encode(model, tensors, request_id)
        if timeout is not None:
            # For a server that the cancellation never reaches.
            request.parameters["timeout"].int64_param = max(1, int(timeout * 1e6))
        call = self._stub.ModelStreamInfer(iter([request]), timeout=timeout)
        exchange = Exchange(self, call, model, timeout)
        with self._lock:
            self._open.add(exchange)
        return exchange

    def close(self) -> None:
        """Cancel every running request and close the channel."""
        with self._lock:
            running = list(self._open)
        for exchange in running:
            exchange.cancel()
        self._channel.close()

    def _forget(self, exchange: Exchange) -> None:
        with self._lock:
            self._open.discard(exchange)

    def _ask(self, method: Any, request: Any) -> Any:
        import grpc

        try:
            return method(request, timeout=CALL_TIMEOUT)
        except grpc.RpcError as error:
            raise explain(error, self.url, CALL_TIMEOUT) from None


class Exchange:
    """One request and its responses, each a mapping of tensor name to array; the stream is closed on the way out."""

    def __init__(self, connection: Connection, call: Any, model: str, timeout: float | None) -> None:
        self._connection = connection
        self._call = call
        self._model = model
        self._timeout = timeout

    def __iter__(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """Responses that carry tensors; ServingError on any failure or if the final one never comes."""
        import grpc

        finished, failure = False, None
        try:
            for answer in self._call:
                if answer.error_message:
                    failure = failure or self._failed(answer.error_message)
                    continue
                response = answer.infer_response
                finished = finished or response.parameters["triton_final_response"].bool_param
                if response.outputs:
                    yield decode(response)
        except grpc.RpcError as error:
            raise failure or explain(error, f"{self._connection.url}, model {self._model}", self._timeout) from None
        finally:
            self.cancel()
        if failure or not finished:
            raise failure or RequestError("the stream ended without a final response", where=f"model {self._model}")

    def _failed(self, message: str) -> RequestError:
        """The failure. The server ends the stream itself: Triton 2.51 keeps what it holds of a request for ever where
        the client leaves as the last response goes out."""
        patience = threading.Timer(LINGER, self.cancel)
        patience.daemon = True
        patience.start()
        self._call.add_callback(patience.cancel)
        return told(message, f"model {self._model}")

    def cancel(self) -> None:
        """Give the request up: the model is told, and iteration elsewhere ends with a ServingError."""
        self._call.cancel()
        self._connection._forget(self)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


def encode(model: str, tensors: Tensors, request_id: str) -> Any:
    """A ModelInferRequest; strings are object arrays of bytes. Asks for an explicit end of a decoupled answer."""
    from tritonclient.grpc import service_pb2
    from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, array in tensors.items():
        request.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        raw = serialize_byte_tensor(array).item() if array.dtype == np.object_ and array.size else array.tobytes()
        request.raw_input_contents.append(raw)
    return request


def decode(response: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Output tensors by name; strings are object arrays of bytes."""
    from tritonclient.grpc import InferResult

    result = InferResult(response)
    return {output.name: result.as_numpy(output.name) for output in response.outputs}


def explain(error: Any, where: str, timeout: float | None) -> RequestError:
    """One error for a gRPC failure."""
    import grpc

    code, details = error.code(), first_sentence(error.details() or "")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return too_late(where, timeout)
    if code == grpc.StatusCode.UNAVAILABLE:
        full = told(details, where)
        return full if full.kind == "overloaded" else unreachable(where, details)
    if code == grpc.StatusCode.CANCELLED:
        return RequestError("the request was cancelled", "cancelled", where=where)
    return told(details or code.name, where)
