"""Calls of other models from many threads of one Python model, around three faults of the Python backend.

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
* **Calls that never return.** When the process of a decoupled model dies, calls of that model are not answered, not
  even with an error, and nothing can interrupt exec(). So a call may be given up: its thread is left behind, and
  another one goes on with the request (see watch.py). A call has no thread of its own, which would cost each of them
  two changes of thread.

To serve the pipeline without Triton's calls, replace :class:`Models`: two ways of calling, and stop.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import triton_python_backend_utils as pb
from wire import REFUSES, Array, first_line

NOT_THERE = ("is not ready", "unknown model", "is not found")
"""What Triton says of a model that is not loaded."""
FAULTS = ("internal error", "Stub process", "Server not ready", "Failed to", "failed to")
"""How the texts of faults begin. What else preprocessing says is about the request."""


class CallFailed(Exception):
    """Another model answered with an error; its text is that error's first line."""

    mode = "draft-failed"
    """How `spec_mode` and the metrics call it when it was the draft's."""


class CallRefused(CallFailed):
    """A model does not take what it was asked: it is for the client to mend."""


class CallSlow(CallFailed):
    """A call took longer than it may."""

    mode = "draft-slow"


class NotLoaded(CallFailed):
    """The server has no such model, or has unloaded it."""

    mode = "no-draft-model"


class Superseded(BaseException):
    """This thread's call was given up, and another thread has gone on with its request: leave at once."""


class Models(Protocol):
    """The other models. Every call may raise CallFailed."""

    def plain(
        self, request_id: str, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """The answer of a model that is not decoupled."""

    def decoupled(
        self, request_id: str, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """The answer of a decoupled model (or one that is not) that sends one response."""

    def stop(self, request_id: str, model: str) -> None:
        """Ask a decoupled model to give up its call with this id. Returns at once, from any thread."""

    def close(self) -> None:
        """No call is made any more."""


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


class ServedModels:
    """The models that this Triton serves."""

    def __init__(self, spent: Spent) -> None:
        self._spent = spent
        self._stoppers: dict[str, queue.SimpleQueue[str]] = {}
        self._lock = threading.Lock()

    def plain(
        self, request_id: str, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """See :class:`Models`."""
        try:
            return _tensors(_request(request_id, model, tensors, wanted).exec(), wanted)
        except CallFailed as error:
            # Triton 2.51 hands on the text of an error, and not its code.
            raise error if str(error).startswith(FAULTS) else CallRefused(str(error)) from None
        except pb.TritonModelException as error:
            raise _failure(error) from None

    def decoupled(
        self, request_id: str, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """See :class:`Models`."""
        try:
            answers = self._exhaust(_request(request_id, model, tensors, wanted))
        except pb.TritonModelException as error:
            raise _failure(error) from None
        found = [tensors for tensors in (_tensors(answer, wanted) for answer in answers) if tensors]
        if not found:
            # The stub mixes up two calls that fail at the same moment; one of them then looks empty.
            raise CallFailed(f"model {model} gave no answer")
        return found[-1]

    def stop(self, request_id: str, model: str) -> None:
        """See :class:`Models`. One thread per model: of a dead model only one ever waits for an answer."""
        with self._lock:
            if model not in self._stoppers:
                waiting = self._stoppers[model] = queue.SimpleQueue()
                thread = threading.Thread(target=self._stop_all, args=(model, waiting), name="stop", daemon=True)
                thread.start()
            self._stoppers[model].put(request_id)

    def close(self) -> None:
        """Nothing is held: the threads are daemons."""

    def _stop_all(self, model: str, waiting: queue.SimpleQueue[str]) -> None:
        tensors = {
            "input_ids": np.zeros((1, 1), dtype=np.int32),
            "input_lengths": np.zeros((1, 1), dtype=np.int32),
            "request_output_len": np.zeros((1, 1), dtype=np.int32),
            "stop": np.ones((1, 1), dtype=np.bool_),
        }
        while True:
            request_id = waiting.get()
            with contextlib.suppress(Exception):  # it may have ended by itself, or its model
                self._exhaust(_request(request_id, model, tensors, ["output_ids"]))

    def _exhaust(self, request: Any) -> list[Any]:
        iterator = request.exec(decoupled=True)
        answers = list(iterator)
        self._spent.keep(iterator)
        return answers


@dataclass(eq=False)
class Call:
    """A call in progress."""

    model: str
    stoppable: bool
    began: float = field(default_factory=time.monotonic)
    stopped: float | None = None
    """When it was asked to stop."""
    slow: bool = False
    """That was because it took too long."""
    given_up: bool = False


Ended = Callable[[Call, "CallFailed | None"], None]


class Caller:
    """Calls on behalf of one request, one at a time. `ended` hears of each when it has returned."""

    def __init__(self, request_id: str, models: Models, ended: Ended) -> None:
        self._request_id = request_id
        self._models = models
        self._ended = ended
        self._lock = threading.Lock()
        self.call: Call | None = None
        """The call in progress."""

    def plain(self, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        """See :class:`Models`."""
        return self._run(Call(model, stoppable=False), self._models.plain, tensors, wanted)

    def decoupled(self, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        """See :class:`Models`."""
        return self._run(Call(model, stoppable=True), self._models.decoupled, tensors, wanted)

    def stop(self, call: Call, *, slow: bool = False) -> None:
        """From another thread: ask the model to give the call up. It knows it by the request id."""
        with self._lock:
            if self.call is not call or call.stopped is not None:
                return
            call.stopped, call.slow = time.monotonic(), slow
        if call.stoppable:
            self._models.stop(self._request_id, call.model)

    def give_up(self, call: Call) -> bool:
        """From another thread: leave the call to its thread. False if it has returned meanwhile."""
        with self._lock:
            if self.call is not call:
                return False
            call.given_up = True
            self.call = None
            return True

    def _run(
        self, call: Call, do: Callable[..., dict[str, Array]], tensors: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        self.call = call
        answer: dict[str, Array] = {}
        failure: CallFailed | None = None
        try:
            answer = do(self._request_id, call.model, tensors, wanted)
        except CallFailed as error:
            failure = error
        finally:
            with self._lock:
                if not call.given_up:
                    self.call = None
        if call.slow:
            # Even if it has answered in the end: the next one would take as long.
            failure = CallSlow(f"model {call.model} took {time.monotonic() - call.began:.1f} s")
        self._ended(call, failure)
        if call.given_up:
            raise Superseded
        if failure is not None:
            raise failure
        return answer


def _request(request_id: str, model: str, tensors: Mapping[str, Array], wanted: Sequence[str]) -> Any:
    return pb.InferenceRequest(
        request_id=request_id,
        model_name=model,
        inputs=[pb.Tensor(name, array) for name, array in tensors.items()],
        requested_output_names=list(wanted),
    )


def _tensors(answer: Any, wanted: Sequence[str]) -> dict[str, Array]:
    if answer.has_error():
        error = answer.error()
        # Triton 2.51 hands on the text and not the code: hence the text of a model of ours (wire.py).
        raise _failure(error.message(), refused=error.code() == pb.TritonError.INVALID_ARG)
    found = {name: pb.get_output_tensor_by_name(answer, name) for name in wanted}
    return {name: np.array(tensor.as_numpy()) for name, tensor in found.items() if tensor is not None}


def _failure(error: object, *, refused: bool = False) -> CallFailed:
    line = first_line(error)
    if line.startswith(REFUSES):
        return CallRefused(line)
    if any(words in line for words in NOT_THERE):
        return NotLoaded(line)
    return CallRefused(line) if refused else CallFailed(line)
