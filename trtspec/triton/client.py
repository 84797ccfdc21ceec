"""Ask the generated models over gRPC: text with or without speculation, and the few calls that explain a difference."""

from __future__ import annotations

import functools
import time
import uuid

import numpy as np

from trtspec.errors import ServingError
from trtspec.triton.answer import PREPROCESSING, TARGET_ONLY, TIMEOUT, PairClient, Retry
from trtspec.triton.connection import Connection, Exchange, ModelInfo
from trtspec.triton.generation import Array, GenerateRequest, Generation
from trtspec.triton.payload import (
    SPECULATIVE,
    flag,
    need,
    number,
    request_tensors,
    string,
    token_ids,
)

__all__ = ["SPECULATIVE", "TARGET_ONLY", "GenerateRequest", "Generation", "Retry", "TritonClient"]

TARGET = "tensorrt_llm"
ANY_PROMPT = "a"
"""Asked only for the end id: an empty one has no tokens where the tokenizer adds none of its own."""


class TritonClient(PairClient):
    """A client for one server, over gRPC; any number of threads may share it.

    Every failure is a ServingError. `timeout` (seconds) is for the calls that do not state their own.
    """

    def __init__(self, grpc_url: str, timeout: float = TIMEOUT, retry: Retry | None = None) -> None:
        super().__init__(timeout, retry)
        self._connection = Connection(grpc_url)
        self._model = functools.lru_cache(maxsize=None)(self._connection.model)
        self._end_id = functools.lru_cache(maxsize=1)(self._ask_end_id)

    def ready(self) -> bool:
        """Whether the server is ready."""
        return self._connection.ready()

    def models(self) -> dict[str, str]:
        """State of every model, by name."""
        return self._connection.models()

    def open(self, model: str, request: GenerateRequest) -> Exchange:
        """The raw responses of one request as they come, for callers that may cancel: iterate, or `.cancel()`."""
        return self._send(model, request_tensors(self._model(model), request), request)

    def next_logits(self, input_ids: tuple[int, ...]) -> Array:
        """float32 [vocab]: the target's logits for the token after `input_ids`."""
        answer = self._target(input_ids, 1, return_generation_logits=flag(True))
        logits = need(answer, TARGET, "generation_logits")
        rows: Array = logits.astype(np.float32).reshape(-1, logits.shape[-1])
        return np.asarray(rows[0])

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        """The target's own greedy continuation, without the end token."""
        end = number(self._end_id())
        answer = self._target(prompt_ids, max_tokens, end_id=end, pad_id=end, exclude_input_in_output=flag(True))
        length = int(need(answer, TARGET, "sequence_length").flat[0])
        return token_ids(need(answer, TARGET, "output_ids"), length)

    def timed(self, model: str, ids: tuple[int, ...], new_tokens: int, drafts: tuple[int, ...] = ()) -> float:
        """Seconds of one greedy call of an engine that does not end before `new_tokens`; it verifies `drafts`."""
        tensors = {
            "input_ids": np.array([ids], dtype=np.int32),
            "input_lengths": number(len(ids)),
            "request_output_len": number(new_tokens),
            "runtime_top_k": number(1),
            "streaming": flag(False),
            "exclude_input_in_output": flag(True),
        }
        if drafts:
            tensors["draft_input_ids"] = np.array([drafts], dtype=np.int32)
        began = time.perf_counter()
        self._once(model, tensors)
        return time.perf_counter() - began

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

    def _await_listener(self) -> None:
        if self._retry.connecting:
            self._connection.await_listener(self._retry.connecting)

    def _model_info(self, model: str) -> ModelInfo:
        return self._model(model)

    def _send(self, model: str, tensors: dict[str, Array], request: GenerateRequest) -> Exchange:
        return self._connection.exchange(model, tensors, request.request_id, request.timeout)

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

    def _ask_end_id(self) -> int:
        return int(need(self._preprocess(ANY_PROMPT), PREPROCESSING, "OUT_END_ID").flat[0])

    def _once(self, model: str, tensors: dict[str, Array]) -> dict[str, Array]:
        with self._connection.exchange(model, tensors, uuid.uuid4().hex, self._timeout) as exchange:
            answers = list(exchange)
        if len(answers) != 1:
            raise ServingError("the model did not answer exactly once", where=f"model {model}", found=len(answers))
        return answers[0]
