"""Calls of other models from many threads of one Python model, around two faults of the Python backend.

Seen in Python backend 2.51 (Triton 24.10), where a decoupled answer is an iterator that the stub process fills from
a thread of its own:

* **Crash.** When an iterator is exhausted, a thread of the stub drops the stub's reference to it *without holding
  the GIL*. If Python has dropped its reference first, that thread destroys numpy arrays while Python runs: a corrupt
  heap about once in 3,000 calls here, with threads, asyncio and one-thread instances alike. (Upstream's later tensor
  destructor takes the GIL.) So a finished iterator is kept until that thread is known to have let go of it: the
  thread works through one queue in order, and `is_cancelled()` is answered through the same queue.
* **Deadlock.** A thread that waits for a further response takes the GIL back while it holds the iterator's lock; a
  second one in exec() holds the GIL and waits for the table of iterators; the stub's thread holds that table and
  waits for the iterator. It needs a second response. So every call here asks for one response, never for a stream.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb
from wire import Array, first_line


class CallFailed(Exception):
    """Another model answered with an error; its text is that error's first line."""


class Spent:
    """Finished response iterators that the stub may still hold."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._iterators: list[Any] = []

    def keep(self, iterator: Any) -> None:
        """Take over the last reference of an exhausted iterator."""
        with self._lock:
            self._iterators.append(iterator)

    def is_cancelled(self, sender: Any) -> bool:
        """Ask the server whether a client has gone; what was kept before the question can go afterwards."""
        with self._lock:
            kept, self._iterators = self._iterators, []
        if sender.is_cancelled():
            # A known cancellation is answered at once, not through the queue.
            with self._lock:
                self._iterators += kept
            return True
        return False


class Caller:
    """Calls on behalf of one request, one at a time."""

    def __init__(self, request_id: str, spent: Spent) -> None:
        self._request_id = request_id
        self._spent = spent
        self._model: str | None = None

    def plain(self, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        """The answer of a model that is not decoupled."""
        return _tensors(_request(model, tensors, wanted, self._request_id).exec(), wanted)

    def decoupled(self, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        """The answer of a decoupled model (or one that is not) that sends one response."""
        self._model = model
        try:
            answers = self._exhaust(_request(model, tensors, wanted, self._request_id))
        finally:
            self._model = None
        found = [tensors for tensors in (_tensors(answer, wanted) for answer in answers) if tensors]
        if not found:
            # The stub mixes up two calls that fail at the same moment; one of them then looks empty.
            raise CallFailed(f"model {model} gave no answer")
        return found[-1]

    def stop(self) -> None:
        """From another thread: ask the model to give up the call in progress. It knows it by the request id."""
        model = self._model
        if model is not None:
            tensors = {
                "input_ids": np.zeros((1, 1), dtype=np.int32),
                "input_lengths": np.zeros((1, 1), dtype=np.int32),
                "request_output_len": np.zeros((1, 1), dtype=np.int32),
                "stop": np.ones((1, 1), dtype=np.bool_),
            }
            self._exhaust(_request(model, tensors, ["output_ids"], self._request_id))

    def _exhaust(self, request: Any) -> list[Any]:
        iterator = request.exec(decoupled=True)
        answers = list(iterator)
        self._spent.keep(iterator)
        return answers


def _request(model: str, tensors: Mapping[str, Array], wanted: Sequence[str], request_id: str) -> Any:
    return pb.InferenceRequest(
        request_id=request_id,
        model_name=model,
        inputs=[pb.Tensor(name, array) for name, array in tensors.items()],
        requested_output_names=list(wanted),
    )


def _tensors(answer: Any, wanted: Sequence[str]) -> dict[str, Array]:
    if answer.has_error():
        raise CallFailed(first_line(answer.error().message()))
    found = {name: pb.get_output_tensor_by_name(answer, name) for name in wanted}
    return {name: np.array(tensor.as_numpy()) for name, tensor in found.items() if tensor is not None}
