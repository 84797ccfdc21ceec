"""Tensors of a request and of its answer: names, types and shapes of TensorRT-LLM's models, scalars as [1, 1]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from trtspec.errors import ServingError
from trtspec.triton.connection import ModelInfo
from trtspec.triton.failures import RequestError
from trtspec.triton.generation import Array, Chunk, GenerateRequest, Generation
from trtspec.triton.llmapi_payload import MARK, llmapi_tensors

SPECULATIVE = "tensorrt_llm_bls"


def request_tensors(model: ModelInfo, request: GenerateRequest) -> dict[str, Array]:
    """The input tensors of one generate request; ServingError when the model cannot take what is asked."""
    if MARK in model.inputs:
        return llmapi_tensors(model.name, model.inputs, request)
    asked = _asked_tensors(request)
    if "num_draft_tokens" not in model.inputs:
        # Target-only answers do not depend on a policy label.
        asked.pop("task", None)
        if request.draft_len == 0:
            asked.pop("num_draft_tokens")
    unknown = sorted(asked.keys() - model.inputs)
    if unknown:
        # Not left to the server: over HTTP it would take them for parameters, and say nothing.
        fix = f"ask {SPECULATIVE}" if "num_draft_tokens" not in model.inputs else "leave it out, or update the server"
        raise RequestError(f"model {model.name} has no input {', '.join(unknown)}", "refused", fix=fix)
    reports = ("return_perf_metrics", "return_num_input_tokens", "return_num_output_tokens")
    return asked | {name: flag(True) for name in reports if name in model.inputs}


def _asked_tensors(request: GenerateRequest) -> dict[str, Array]:
    greedy = request.temperature == 0.0
    # With neither top_k nor top_p TensorRT-LLM takes the best token, whatever the temperature.
    top_p = None if greedy else 1.0 if request.top_k is None and request.top_p is None else request.top_p
    optional = {
        "num_draft_tokens": None if request.draft_len is None else number(request.draft_len),
        "use_draft_logits": flag(True) if request.use_draft_logits else None,
        "draft_acceptance_threshold": _real(request.draft_acceptance_threshold),
        # Temperature 0 is not accepted by every version of TensorRT-LLM; the best token alone is the same.
        "temperature": None if greedy else _real(request.temperature),
        "top_k": number(1) if greedy else None if request.top_k is None else number(request.top_k),
        "top_p": _real(top_p),
        "seed": None if request.seed is None else number(request.seed, np.uint64),
        "repetition_penalty": _real(request.repetition_penalty),
        "presence_penalty": _real(request.presence_penalty),
        "frequency_penalty": _real(request.frequency_penalty),
        "min_tokens": None if request.min_tokens is None else number(request.min_tokens),
        "stop_words": strings(request.stop_words) if request.stop_words else None,
        "bad_words": strings(request.bad_words) if request.bad_words else None,
        "task": None if request.task is None else strings([request.task]),
        "end_id": number(-1) if request.ignore_eos else None,
        "return_log_probs": flag(True) if request.return_log_probs else None,
    }
    required = {
        "text_input": strings([request.prompt]),
        "max_tokens": number(request.max_tokens),
        "stream": flag(request.stream),
        "exclude_input_in_output": flag(True),
    }
    return required | _bias(request) | {name: array for name, array in optional.items() if array is not None}


def _bias(request: GenerateRequest) -> dict[str, Array]:
    if not request.embedding_bias:
        return {}
    words, weights = zip(*request.embedding_bias, strict=True)
    weighted = np.array([weights], dtype=np.float32)
    return {"embedding_bias_words": strings(words), "embedding_bias_weights": weighted}


def _real(value: float | None) -> Array | None:
    return None if value is None else number(value, np.float32)


class Collected:
    """Responses of one request: texts are pieces, output tokens are counts of a piece, all else is the latest."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._latest: dict[str, Array] = {}
        self._output_tokens = 0
        self._log_probs = 0
        self._chunks: list[Chunk] = []
        self._unseen = 0

    def add(self, response: Mapping[str, Array], seconds: float) -> bytes:
        """Take one response that came `seconds` after the request was sent; returns the text it brought."""
        piece = string(response["text_output"]) if "text_output" in response else b""
        counted = int(response["num_output_tokens"].flat[0]) if "num_output_tokens" in response else None
        # Tokens that show no text yet (part of a character) belong to the piece that shows it.
        self._unseen += counted or 0
        if piece:
            # The LLM API's model counts once, with its last response.
            known = counted is not None and "spec_source" not in response
            self._chunks.append(Chunk(seconds, self._unseen if known else None))
            self._unseen = 0
        self._pieces.append(piece)
        self._output_tokens += counted or 0
        self._log_probs += response["output_log_probs"].shape[-1] if "output_log_probs" in response else 0
        self._latest |= response
        return piece

    @property
    def input_tokens(self) -> int | None:
        """Tokens of the prompt, if the model has said; the ensemble does with TensorRT-LLM 1.2 and newer."""
        return self._count("num_input_tokens") if "num_input_tokens" in self._latest else None

    def generation(
        self, model: str, request: GenerateRequest, seconds: float, input_tokens: int | None = None
    ) -> Generation:
        """The whole answer; ServingError if the model left out what every answer must hold.

        `input_tokens` is for a model that does not say.
        """
        counted = self.input_tokens if input_tokens is None else input_tokens
        needed = {"text_output", "num_output_tokens"} | ({"num_input_tokens"} if counted is None else set())
        missing = sorted(needed - self._latest.keys())
        if missing:
            raise ServingError(f"the answer lacks {', '.join(missing)}", where=f"model {model}")
        histogram = self._latest.get("spec_histogram")
        return Generation(
            # A character of several bytes may be split over two pieces.
            text=b"".join(self._pieces).decode("utf-8", "replace"),
            finish_reason=self._string("finish_reason"),
            mode=self._mode(),
            histogram=None if histogram is None else histogram.reshape(histogram.shape[-3:]),
            tested=self._count("spec_tested"),
            rounds=self._count("spec_rounds"),
            accepted=self._count("total_accepted_draft_tokens"),
            drafted=self._count("total_draft_tokens"),
            input_tokens=counted or 0,
            output_tokens=self._output_tokens,
            seconds=seconds,
            first_token_seconds=self._chunks[0].seconds if request.stream and self._chunks else None,
            chunks=tuple(self._chunks),
            log_probs=self._log_probs if request.return_log_probs else None,
        )

    def _mode(self) -> str:
        """As the speculative pipeline says; the LLM API's model says where its totals come from."""
        if "spec_source" in self._latest:
            return "target-only:not-drafted" if self._string("spec_source") == "none" else "speculative"
        return self._string("spec_mode")

    def _count(self, name: str) -> int:
        return int(self._latest[name].flat[0]) if name in self._latest else 0

    def _string(self, name: str) -> str:
        return string(self._latest[name]).decode() if name in self._latest else ""


def number(value: float, dtype: type[np.generic] = np.int32) -> Array:
    """[1, 1] of a numeric type."""
    return np.array([[value]], dtype=dtype)


def flag(value: bool) -> Array:
    """[1, 1] bool."""
    return np.array([[value]], dtype=np.bool_)


def strings(values: Iterable[str]) -> Array:
    """[1, n] UTF-8 bytes."""
    return np.array([[value.encode() for value in values]], dtype=np.object_)


def string(array: Array) -> bytes:
    """The first string of a tensor, empty if it has none."""
    return bytes(array.flat[0]) if array.size else b""


def token_ids(array: Array, length: int) -> tuple[int, ...]:
    """The first `length` numbers of a tensor."""
    return tuple(int(i) for i in array.reshape(-1)[:length])


def need(answer: Mapping[str, Array], model: str, name: str) -> Array:
    """A tensor of an answer; ServingError if it is not there."""
    if name not in answer:
        raise ServingError(f"the answer lacks {name}", where=f"model {model}", found=", ".join(sorted(answer)))
    return answer[name]
