"""Requests to the LLM API's model: its own names, one dimension, and no wish that it would ignore."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trtspec.errors import ServingError
from trtspec.triton.connection import ModelInfo
from trtspec.triton.generation import GenerateRequest
from trtspec.triton.llmapitables import INPUTS
from trtspec.triton.payload import Collected, request_tensors

MODEL = ModelInfo(
    "tensorrt_llm", frozenset(line.split()[0] for line in INPUTS.splitlines() if line.strip()), frozenset()
)


def tensors(**asked: Any) -> dict[str, Any]:
    found = request_tensors(MODEL, GenerateRequest("Hi", 8, **asked))
    assert all(array.ndim == 1 for array in found.values())
    return {name: array.tolist() for name, array in found.items()}


def test_greedy() -> None:
    assert tensors(stream=True) == {
        "text_input": [b"Hi"],
        "streaming": [True],
        "return_finish_reason": [True],
        "sampling_param_max_tokens": [8],
        "sampling_param_exclude_input_from_output": [True],
        "sampling_param_return_perf_metrics": [True],
        "sampling_param_top_k": [1],
    }


def test_sampling() -> None:
    found = tensors(temperature=0.5, top_k=7, top_p=0.25, seed=3, stop_words=("a", "b"), ignore_eos=True)
    assert found["sampling_param_temperature"] == [0.5]
    assert (found["sampling_param_top_k"], found["sampling_param_top_p"]) == ([7], [0.25])
    assert (found["sampling_param_seed"], found["sampling_param_stop"]) == ([3], [b"a", b"b"])
    assert found["sampling_param_ignore_eos"] == [True]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"draft_len": 0}, "none of: a draft length"),
        ({"use_draft_logits": True}, "draft logits"),
        ({"task": "code"}, "a task"),
        ({"return_log_probs": True}, "log-probabilities"),
    ],
)
def test_wishes_that_it_cannot_fulfil_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ServingError, match=says):
        tensors(**asked)


def test_a_model_of_another_making_is_refused() -> None:
    upstream = ModelInfo("tensorrt_llm", MODEL.inputs - {"sampling_param_ignore_eos"}, frozenset())
    with pytest.raises(ServingError, match="no input sampling_param_ignore_eos"):
        request_tensors(upstream, GenerateRequest("Hi", 8, ignore_eos=True))


@pytest.mark.parametrize(
    ("source", "mode"),
    [(b"metrics", "speculative"), (b"iterations", "speculative"), (b"none", "target-only:not-drafted")],
)
def test_totals_say_whether_there_were_drafts(source: bytes, mode: str) -> None:
    def words(text: bytes) -> np.ndarray[Any, Any]:
        return np.array([text], np.object_)

    def number(value: int) -> np.ndarray[Any, Any]:
        return np.array([value], np.int32)

    answer = Collected()
    answer.add({"text_output": words(b"one ")}, 0.1)
    answer.add(
        {
            "text_output": words(b"two"), "finish_reason": words(b"stop"), "spec_source": words(source),
            "num_output_tokens": number(4), "num_input_tokens": number(2), "spec_rounds": number(2),
            "total_accepted_draft_tokens": number(2), "total_draft_tokens": number(8),
        },
        0.3,
    )  # fmt: skip
    found = answer.generation("tensorrt_llm", GenerateRequest("Hi", 8, stream=True), 0.4)
    assert (found.text, found.output_tokens, found.rounds, found.accepted, found.drafted) == ("one two", 4, 2, 2, 8)
    assert (found.mode, found.histogram, found.first_token_seconds) == (mode, None, 0.1)
    # It counts once, at the end: no piece has a count of its own.
    assert [(c.seconds, c.tokens) for c in found.chunks] == [(0.1, None), (0.3, None)]
