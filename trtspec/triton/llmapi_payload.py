"""Tensors of a request to the `llmapi` model, whose names are those of TensorRT-LLM's SamplingParams.

The model has no batch dimension, drafts inside the engine, and takes no draft length by request.
"""

from __future__ import annotations

import numpy as np

from trtspec.errors import ServingError
from trtspec.triton.generation import Array, GenerateRequest

MARK = "sampling_param_max_tokens"
"""The input by which such a model is known."""
_PREFIX = "sampling_param_"


def llmapi_tensors(name: str, inputs: frozenset[str], request: GenerateRequest) -> dict[str, Array]:
    """The input tensors of one request; ServingError for what this model cannot do."""
    _refuse(name, request)
    asked = {
        "text_input": _words(request.prompt),
        "streaming": _flag(request.stream),
        "return_finish_reason": _flag(True),
        **{_PREFIX + key: array for key, array in _sampling(request).items()},
    }
    unknown = sorted(asked.keys() - inputs)
    if unknown:
        raise ServingError(f"model {name} has no input {', '.join(unknown)}", fix="write its repository with trtspec")
    return asked


def _refuse(name: str, request: GenerateRequest) -> None:
    refused = {
        "a draft length": request.draft_len is not None,
        "draft logits": request.use_draft_logits,
        "a task": request.task is not None,
        "log-probabilities of every token": request.return_log_probs,
        "acceptance threshold": request.draft_acceptance_threshold is not None,
        "repetition penalty": request.repetition_penalty is not None,
        "least number of tokens": request.min_tokens is not None,
        "bad words": bool(request.bad_words),
        "bias of words": bool(request.embedding_bias),
    }
    asked = [what for what, given in refused.items() if given]
    if asked:
        raise ServingError(f"model {name} drafts inside the engine and takes none of: {', '.join(asked)}")


def _sampling(request: GenerateRequest) -> dict[str, Array]:
    greedy = request.temperature == 0.0
    optional = {
        "temperature": None if greedy else np.array([request.temperature], np.float32),
        "top_k": _number(1) if greedy else None if request.top_k is None else _number(request.top_k),
        "top_p": None if greedy or request.top_p is None else np.array([request.top_p], np.float32),
        "presence_penalty": _real(request.presence_penalty),
        "frequency_penalty": _real(request.frequency_penalty),
        "seed": None if request.seed is None else np.array([request.seed], np.uint64),
        "stop": _words(*request.stop_words) if request.stop_words else None,
        "ignore_eos": _flag(True) if request.ignore_eos else None,
    }
    required = {
        "max_tokens": _number(request.max_tokens),
        "exclude_input_from_output": _flag(True),
        "return_perf_metrics": _flag(True),
    }
    return required | {key: array for key, array in optional.items() if array is not None}


def _number(value: int) -> Array:
    return np.array([value], np.int32)


def _real(value: float | None) -> Array | None:
    return None if value is None else np.array([value], np.float32)


def _flag(value: bool) -> Array:
    return np.array([value], np.bool_)


def _words(*values: str) -> Array:
    return np.array([value.encode() for value in values], np.object_)
