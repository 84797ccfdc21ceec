"""Ask the generated models: text with or without speculation, and the few calls that explain a difference."""

from __future__ import annotations

import functools
import time
import uuid
from types import TracebackType

import numpy as np

from trtspec.errors import ServingError
from trtspec.triton.connection import Connection, Exchange
from trtspec.triton.generation import Array, GenerateRequest, Generation
from trtspec.triton.payload import (
    SPECULATIVE,
    Collected,
    flag,
    need,
    number,
    request_tensors,
    string,
    strings,
    token_ids,
)

__all__ = ["SPECULATIVE", "TARGET_ONLY", "GenerateRequest", "Generation", "TritonClient"]

TARGET_ONLY = "ensemble"
TARGET = "tensorrt_llm"
TIMEOUT = 120.0


class TritonClient:
    """A client for one server, over gRPC; any number of threads may share it.

    Every failure is a ServingError. `timeout` (seconds) is for the calls that do not state their own.
    """

    def __init__(self, grpc_url: str, timeout: float = TIMEOUT) -> None:
        self._connection = Connection(grpc_url)
        self._timeout = timeout
        self._model = functools.lru_cache(maxsize=None)(self._connection.model)
        self._end_id = functools.lru_cache(maxsize=1)(self._ask_end_id)

    def ready(self) -> bool:
        """Whether the server is ready."""
        return self._connection.ready()

    def models(self) -> dict[str, str]:
        """State of every model, by name."""
        return self._connection.models()

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        """Answer one request with `ensemble` (target only) or `tensorrt_llm_bls`."""
        tensors = request_tensors(self._model(model), request)
        began = time.perf_counter()
        collected = Collected()
        with self._connection.exchange(model, tensors, request.request_id, request.timeout) as exchange:
            for response in exchange:
                collected.add(response, time.perf_counter() - began)
        seconds = time.perf_counter() - began
        # Asked after the clock has stopped, and only where the model's TensorRT-LLM version does not count.
        counted = len(self.tokens(request.prompt)) if self._counts_not(model) else None
        return collected.generation(model, request, seconds, counted)

    def _counts_not(self, model: str) -> bool:
        return model == TARGET_ONLY and "num_input_tokens" not in self._model(model).outputs

    def open(self, model: str, request: GenerateRequest) -> Exchange:
        """The raw responses of one request as they come, for callers that may cancel: iterate, or `.cancel()`."""
        tensors = request_tensors(self._model(model), request)
        return self._connection.exchange(model, tensors, request.request_id, request.timeout)

    def next_logits(self, input_ids: tuple[int, ...]) -> Array:
        """float32 [vocab]: the target's logits for the token after `input_ids`."""
        answer = self._target(input_ids, 1, return_generation_logits=flag(True))
        logits = need(answer, TARGET, "generation_logits")
        rows: Array = logits.astype(np.float32).reshape(-1, logits.shape[-1])
        return np.asarray(rows[0])

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """Token ids the server makes of a prompt."""
        answer = self._preprocess(prompt)
        length = int(need(answer, "preprocessing", "REQUEST_INPUT_LEN").flat[0])
        return token_ids(need(answer, "preprocessing", "INPUT_ID"), length)

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        """The target's own greedy continuation, without the end token."""
        end = number(self._end_id())
        answer = self._target(prompt_ids, max_tokens, end_id=end, pad_id=end, exclude_input_in_output=flag(True))
        length = int(need(answer, TARGET, "sequence_length").flat[0])
        return token_ids(need(answer, TARGET, "output_ids"), length)

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of token ids."""
        tensors = {
            "TOKENS_BATCH": np.array(ids, dtype=np.int32).reshape(1, 1, -1),
            "SEQUENCE_LENGTH": number(len(ids)),
        }
        answer = self._once("postprocessing", tensors)
        return string(need(answer, "postprocessing", "OUTPUT")).decode("utf-8", "replace")

    def close(self) -> None:
        """Cancel what is running and close the channel."""
        self._connection.close()

    def __enter__(self) -> TritonClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _target(self, input_ids: tuple[int, ...], new_tokens: int, **more: Array) -> dict[str, Array]:
        """One greedy answer of the target. Without `end_id` it does not stop at the end token."""
        tensors = {
            "input_ids": np.array([input_ids], dtype=np.int32),
            "input_lengths": number(len(input_ids)),
            "request_output_len": number(new_tokens),
            "runtime_top_k": number(1),
            "streaming": flag(False),
        }
        return self._once(TARGET, tensors | more)

    def _preprocess(self, prompt: str) -> dict[str, Array]:
        return self._once("preprocessing", {"QUERY": strings([prompt]), "REQUEST_OUTPUT_LEN": number(1)})

    def _ask_end_id(self) -> int:
        return int(need(self._preprocess(""), "preprocessing", "OUT_END_ID").flat[0])

    def _once(self, model: str, tensors: dict[str, Array]) -> dict[str, Array]:
        """The only response of a model that answers once."""
        with self._connection.exchange(model, tensors, uuid.uuid4().hex, self._timeout) as exchange:
            answers = list(exchange)
        if len(answers) != 1:
            raise ServingError("the model did not answer exactly once", where=f"model {model}", found=len(answers))
        return answers[0]
