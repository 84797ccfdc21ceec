"""One answer as it comes: its text piece by piece, then all of it with its counts. The same over gRPC and HTTP."""

from __future__ import annotations

import codecs
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from trtspec.triton.connection import ModelInfo
from trtspec.triton.failures import RequestError
from trtspec.triton.generation import Array, GenerateRequest, Generation
from trtspec.triton.payload import Collected, need, number, request_tensors, strings, token_ids

TARGET_ONLY = "ensemble"
PREPROCESSING = "preprocessing"
TIMEOUT = 120.0


@dataclass(frozen=True)
class Retry:
    """What may be repeated because nothing was done yet. Nothing else ever is: an answer may already have cost."""

    connecting: float = 0.0
    """Seconds to wait until somebody listens."""
    overloaded: float = 0.0
    """Seconds to go on asking, ever more slowly, a server that turns requests away."""
    first_pause: float = 0.1
    longest_pause: float = 5.0


class Responses(Protocol):
    """The responses of one request; iterating ends with an error if the last one never comes."""

    def __iter__(self) -> Iterator[dict[str, Array]]: ...

    def cancel(self) -> None:
        """Give the request up."""


class Answer:
    """Iterate for the text as it comes, then read `result`. Leaving the `with` block early cancels the request."""

    def __init__(
        self,
        model: str,
        request: GenerateRequest,
        send: Callable[[], Responses],
        retry: Retry,
        count: Callable[[], int | None],
    ) -> None:
        self._model, self._request = model, request
        self._send, self._retry, self._count = send, retry, count
        self._collected = Collected()
        self._began = time.perf_counter()
        self._seconds: float | None = None
        self._running: Responses | None = None

    def __iter__(self) -> Iterator[str]:
        """Pieces of text, never half a character."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for response in self._responses():
            text = decoder.decode(self._collected.add(response, time.perf_counter() - self._began))
            if text:
                yield text
        self._seconds = time.perf_counter() - self._began
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest

    @property
    def result(self) -> Generation:
        """The whole answer, once its text has been read to the end."""
        if self._seconds is None:
            raise RequestError("the answer was not read to its end", where=f"model {self._model}")
        # Asked after the clock has stopped, and only where the model's TensorRT-LLM version does not count.
        return self._collected.generation(self._model, self._request, self._seconds, self._count())

    def cancel(self) -> None:
        """Give the request up; any thread may."""
        if self._running is not None:
            self._running.cancel()

    def __enter__(self) -> Answer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def _responses(self) -> Iterator[dict[str, Array]]:
        """Of the first attempt that the server does not turn away."""
        pause = self._retry.first_pause
        while True:
            self._running = self._send()
            answered = False
            try:
                for response in self._running:
                    answered = True
                    yield response
                return
            except RequestError as error:
                waited = time.perf_counter() - self._began
                if answered or error.kind != "overloaded" or waited + pause > self._retry.overloaded:
                    raise
            finally:
                self._running.cancel()
            time.sleep(pause)
            pause = min(2 * pause, self._retry.longest_pause)


class PairClient(ABC):
    """What both clients do; a protocol adds how tensors travel. Any number of threads may share one."""

    def __init__(self, timeout: float = TIMEOUT, retry: Retry | None = None) -> None:
        self._timeout = timeout
        self._retry = retry or Retry()

    def stream(self, model: str, request: GenerateRequest) -> Answer:
        """The answer as it comes: `for text in answer`, then `answer.result`. Use it in a `with` block.

        One piece at a time only where `request.stream` says so.
        """
        self._await_listener()
        tensors = request_tensors(self._model_info(model), request)
        return Answer(
            model,
            request,
            lambda: self._send(model, tensors, request),
            self._retry,
            lambda: len(self.tokens(request.prompt)) if self._counts_not(model) else None,
        )

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        """Answer one request with `ensemble` (target only) or `tensorrt_llm_bls`."""
        with self.stream(model, request) as answer:
            for _ in answer:
                pass
            return answer.result

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """Token ids the server makes of a prompt."""
        answer = self._preprocess(prompt)
        length = int(need(answer, PREPROCESSING, "REQUEST_INPUT_LEN").flat[0])
        return token_ids(need(answer, PREPROCESSING, "INPUT_ID"), length)

    def _preprocess(self, prompt: str) -> dict[str, Array]:
        return self._once(PREPROCESSING, {"QUERY": strings([prompt]), "REQUEST_OUTPUT_LEN": number(1)})

    def _counts_not(self, model: str) -> bool:
        return model == TARGET_ONLY and "num_input_tokens" not in self._model_info(model).outputs

    @abstractmethod
    def ready(self) -> bool:
        """Whether the server is ready; false also when it cannot be reached."""

    @abstractmethod
    def close(self) -> None:
        """Cancel what is running and close the connections."""

    @abstractmethod
    def _await_listener(self) -> None: ...

    @abstractmethod
    def _model_info(self, model: str) -> ModelInfo: ...

    @abstractmethod
    def _once(self, model: str, tensors: dict[str, Array]) -> dict[str, Array]:
        """The only response of a model that answers once."""

    @abstractmethod
    def _send(self, model: str, tensors: dict[str, Array], request: GenerateRequest) -> Responses: ...

    def __enter__(self) -> PairClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
