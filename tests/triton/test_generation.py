"""Requests and answers as values, without a server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triton.throwaway import GENERATE_INPUTS, SPECULATIVE_INPUTS
from trtspec.errors import ConfigError, ServingError
from trtspec.triton.connection import ModelInfo
from trtspec.triton.generation import GenerateRequest
from trtspec.triton.payload import Collected, number, request_tensors, strings

PLAIN = ModelInfo("ensemble", frozenset(t[0] for t in GENERATE_INPUTS), frozenset())
SPECULATING = ModelInfo("tensorrt_llm_bls", PLAIN.inputs | {t[0] for t in SPECULATIVE_INPUTS}, frozenset())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"draft_len": -1},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"seed": -1},
        {"seed": 2**64},
        {"stop_words": ("a", "")},
    ],
)
def test_values_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(ConfigError, match=f"{name} is out of range"):
        GenerateRequest(**{"prompt": "p", "max_tokens": 1, **wrong})


def test_request_ids_differ_unless_given() -> None:
    assert GenerateRequest("p", 1).request_id != GenerateRequest("p", 1).request_id
    assert GenerateRequest("p", 1, request_id="mine").request_id == "mine"


def test_greedy_is_the_best_token_alone() -> None:
    tensors = request_tensors(PLAIN, GenerateRequest("p", 1, temperature=0.0, top_k=40, top_p=0.9))
    assert tensors["top_k"].tolist() == [[1]]
    assert not {"temperature", "top_p"} & tensors.keys()


def test_what_was_not_asked_is_not_sent() -> None:
    tensors = request_tensors(SPECULATING, GenerateRequest("p", 1, temperature=0.5))
    assert not {"num_draft_tokens", "use_draft_logits", "top_k", "seed", "stop_words", "task"} & tensors.keys()


def test_a_sampled_request_always_says_from_what_to_draw() -> None:
    """With neither top_k nor top_p the wire means the best token, whatever the temperature."""
    assert request_tensors(PLAIN, GenerateRequest("p", 1, temperature=0.5))["top_p"].tolist() == [[1.0]]
    assert "top_p" not in request_tensors(PLAIN, GenerateRequest("p", 1, temperature=0.5, top_k=40))


@pytest.mark.parametrize("change", [{"max_tokens": 2**31}, {"draft_len": 2**40}, {"prompt": "\ud800"}])
def test_what_the_wire_cannot_hold_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        GenerateRequest(**({"prompt": "p", "max_tokens": 1} | change))


@pytest.mark.parametrize(
    "change",
    [
        {"min_tokens": 2}, {"repetition_penalty": 0.0}, {"presence_penalty": float("nan")}, {"bad_words": ("",)},
        {"frequency_penalty": float("inf")}, {"embedding_bias": (("", 1.0),)}, {"draft_acceptance_threshold": 1.5},
        {"draft_acceptance_threshold": 0.0}, {"draft_acceptance_threshold": 1e-60},
        {"timeout": 0.0},
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(change))} is out of range"):
        GenerateRequest(**({"prompt": "p", "max_tokens": 1} | change))


def test_how_words_are_weighed_and_kept_out() -> None:
    names = ("min_tokens", "bad_words", "embedding_bias_words", "embedding_bias_weights", "draft_acceptance_threshold")
    penalties = {
        f"{kind}_penalty": value for kind, value in (("repetition", 1.5), ("presence", 0.5), ("frequency", -0.5))
    }
    model = ModelInfo("tensorrt_llm_bls", SPECULATING.inputs | {*names, *penalties}, frozenset())
    asked = GenerateRequest(
        "p", 9, min_tokens=3, bad_words=("no",), embedding_bias=(("yes", 2.5), ("so", -1.0)),
        draft_acceptance_threshold=0.25, **penalties,
    )  # fmt: skip
    tensors = {name: array.tolist() for name, array in request_tensors(model, asked).items()}
    assert {name: tensors[name] for name in names} == {
        "min_tokens": [[3]],
        "bad_words": [[b"no"]],
        "embedding_bias_words": [[b"yes", b"so"]],
        "embedding_bias_weights": [[2.5, -1.0]],
        "draft_acceptance_threshold": [[0.25]],
    }
    assert {name: tensors[name] for name in penalties} == {name: [[value]] for name, value in penalties.items()}


def test_reports_are_asked_of_models_that_know_them() -> None:
    old = ModelInfo("ensemble", PLAIN.inputs - {"return_num_output_tokens"}, frozenset())
    assert "return_num_output_tokens" not in request_tensors(old, GenerateRequest("p", 1))
    assert request_tensors(PLAIN, GenerateRequest("p", 1))["return_num_output_tokens"].tolist() == [[True]]


def test_a_target_only_model_takes_no_speculation_but_ignores_a_label() -> None:
    tensors = request_tensors(PLAIN, GenerateRequest("p", 1, draft_len=0, task="code"))
    assert not {"num_draft_tokens", "task"} & tensors.keys()
    with pytest.raises(ServingError, match="model ensemble has no input num_draft_tokens; ask tensorrt_llm_bls"):
        request_tensors(PLAIN, GenerateRequest("p", 1, draft_len=2))
    with pytest.raises(ServingError, match="use_draft_logits"):
        request_tensors(PLAIN, GenerateRequest("p", 1, use_draft_logits=True))


@given(st.text(max_size=40), st.integers(0, 40))
def test_pieces_cut_anywhere_make_the_whole_text(text: str, at: int) -> None:
    raw = text.encode()
    collected = Collected()
    for piece in (raw[:at], raw[at:]):
        counts = {"num_input_tokens": number(3), "num_output_tokens": number(2)}
        collected.add({"text_output": np.array([piece], dtype=np.object_), **counts}, 0.5)
    answer = collected.generation("m", GenerateRequest("p", 1), 1.0)
    assert (answer.text, answer.input_tokens, answer.output_tokens, answer.seconds) == (text, 3, 4, 1.0)
    assert answer.first_token_seconds is None


def test_the_first_text_is_timed_when_streamed() -> None:
    collected = Collected()
    for seconds, piece in ((0.1, ""), (0.2, "a"), (0.3, "b")):
        counts = {"num_input_tokens": number(3), "num_output_tokens": number(1)}
        collected.add({"text_output": strings([piece])[0], **counts}, seconds)
    assert collected.generation("m", GenerateRequest("p", 1, stream=True), 1.0).first_token_seconds == 0.2


def test_an_answer_without_its_counts_is_refused() -> None:
    collected = Collected()
    collected.add({"text_output": strings(["x"])[0], "num_input_tokens": number(1)}, 0.1)
    with pytest.raises(ServingError, match="model m: the answer lacks num_output_tokens"):
        collected.generation("m", GenerateRequest("p", 1), 1.0)
