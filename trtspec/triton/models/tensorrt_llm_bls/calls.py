"""Calls of other models from a Python model, without the crash that plain calls have.

Python backend 2.51 (24.10) corrupts the heap of its process now and then: when a decoupled answer is exhausted, a
thread of the stub drops the stub's own reference to the response iterator *without holding the GIL*. If Python has
dropped its reference first, that thread destroys the numpy arrays in it while Python runs (about one crash in
3,000 calls here, with threads, with asyncio and with blocking instances alike; upstream's later PbTensor destructor
takes the GIL). So a finished iterator is kept until that thread is known to have let go of it: it works through
one queue in order, and `is_cancelled()` is answered through the same queue.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb
from wire import Array, first_line

MANY = 16


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

    @property
    def many(self) -> bool:
        """Whether it is time to ask again; what is kept occupies shared memory."""
        return len(self._iterators) >= MANY

    def is_cancelled(self, sender: Any) -> bool:
        """Ask the server whether the client has gone; what was kept before the question can go afterwards."""
        with self._lock:
            kept, self._iterators = self._iterators, []
        if sender.is_cancelled():
            # A known cancellation is answered at once, not through the queue.
            with self._lock:
                self._iterators += kept
            return True
        return False


class Caller:
    """Calls on behalf of one request."""

    def __init__(self, request_id: str, spent: Spent) -> None:
        self._request_id = request_id
        self._spent = spent

    def once(self, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        """The answer of a model that answers exactly once."""
        answer = _request(model, tensors, wanted, self._request_id).exec()
        return _tensors(answer, wanted)

    def each(self, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]) -> Iterator[dict[str, Array]]:
        """The answers of a decoupled model as they come. Closing the iterator early stops the model."""
        iterator = _request(model, tensors, wanted, self._request_id).exec(decoupled=True)
        answered = exhausted = False
        try:
            for answer in iterator:
                found = _tensors(answer, wanted)
                if found:
                    answered = True
                    yield found
            exhausted = True
        except GeneratorExit:
            self._stop(model)
            raise
        finally:
            if not exhausted:
                _drain(iterator)
            self._spent.keep(iterator)
        if not answered:
            # The stub mixes up two calls that fail at the same moment; one of them then looks empty.
            raise CallFailed(f"model {model} gave no answer")

    def _stop(self, model: str) -> None:
        """Ask the model to give up the call in progress; it knows it by the request id."""
        tensors = {
            "input_ids": np.zeros((1, 1), dtype=np.int32),
            "input_lengths": np.zeros((1, 1), dtype=np.int32),
            "request_output_len": np.zeros((1, 1), dtype=np.int32),
            "stop": np.ones((1, 1), dtype=np.bool_),
        }
        iterator = _request(model, tensors, ["output_ids"], self._request_id).exec(decoupled=True)
        _drain(iterator)
        self._spent.keep(iterator)


def _drain(iterator: Any) -> None:
    for _ in iterator:
        pass


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
