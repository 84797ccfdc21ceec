"""What one request may ask for; every refusal is one line that names what was found and what is allowed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triton import fakepb, modelfolder
from trtspec.config.serving import Serving


def words(*items: str | bytes) -> np.ndarray[Any, Any]:
    return np.array([[i if isinstance(i, bytes) else i.encode() for i in items]], dtype=np.object_)


def number(value: int) -> np.ndarray[Any, Any]:
    return np.array([[value]], dtype=np.int32)


def refused(bls: dict[str, ModuleType], limits: Any, request_id: str = "", **tensors: Any) -> str | None:
    try:
        limits.check(bls["wire"].Inputs(tensors), request_id)
    except bls["wire"].Refused as reason:
        return str(reason)
    return None


SMALL = {"prompt_bytes": 10, "max_tokens": 8, "stop_words": 2, "stop_word_bytes": 4}
SECRET = "p455w0rd"


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"text_input": words("é" * 6)}, "text_input has 12 bytes; this server takes at most 10"),
        ({"text_input": words("ok", SECRET * 2)}, "text_input has 16 bytes; this server takes at most 10"),
        ({"text_input": np.array([["é" * 6]], dtype=np.object_)}, "text_input has 12 bytes; this server takes at most"),
        ({"decoder_text_input": words(SECRET * 2)}, "decoder_text_input has 16 bytes; this server takes at most 10"),
        ({"guided_decoding_guide": words(SECRET * 2)}, "guided_decoding_guide has 16 bytes; this server takes at most"),
        ({"task": words("x" * 257)}, "task has 257 bytes; this server takes at most 256"),
        ({"stop_words": words("a", "b", "c")}, "stop_words holds 3 words; this server takes at most 2"),
        ({"stop_words": words("a", SECRET)}, "stop_words holds a word of 8 bytes; this server takes at most 4"),
        ({"bad_words": words("", "", "")}, "bad_words holds 3 words; this server takes at most 2"),
        ({"embedding_bias_words": words(SECRET)}, "embedding_bias_words holds a word of 8 bytes"),
        ({"max_tokens": number(9)}, "max_tokens is 9; this server takes at most 8"),
        ({"num_return_sequences": number(65)}, "num_return_sequences is 65; this server takes at most 64"),
        ({"beam_width": number(2**31 - 1)}, "beam_width is 2147483647; this server takes at most 64"),
    ],
)
def test_too_much_is_refused_in_one_line(bls: dict[str, ModuleType], tensors: dict[str, Any], said: str) -> None:
    found = refused(bls, bls["limits"].Limits(**SMALL), **tensors)
    assert found is not None
    assert found.startswith(said)
    assert "\n" not in found
    assert SECRET not in found


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("temperature", np.nan, "temperature is nan; it must be 0 (greedy) or positive"),
        ("temperature", -0.5, "temperature is -0.5; it must be 0 (greedy) or positive"),
        ("top_p", np.nan, "top_p is nan; it must be a number"),
        ("top_k", -1, "top_k is -1; it must be 0 (off) or positive"),
        ("repetition_penalty", 0.0, "repetition_penalty is 0; it must be positive"),
        ("presence_penalty", np.inf, "presence_penalty is inf; it must be finite"),
        ("frequency_penalty", -np.inf, "frequency_penalty is -inf; it must be finite"),
        ("embedding_bias_weights", -np.inf, "embedding_bias_weights is -inf; it must be finite"),
    ],
)
def test_numbers_that_no_model_takes_do_not_reach_the_draft(
    bls: dict[str, ModuleType], name: str, value: float, said: str
) -> None:
    limits = bls["limits"].Limits()
    assert refused(bls, limits, **{name: np.array([[1.0], [value]], dtype=np.float32)}) == said
    assert refused(bls, limits, **{name: np.array([[1]])}) is None


def test_a_request_id_has_an_end(bls: dict[str, ModuleType]) -> None:
    limits = bls["limits"].Limits()
    assert refused(bls, limits, "r" * 256) is None
    found = refused(bls, limits, "r" * 257)
    assert found == "the request id has 257 characters; this server takes at most 256"


def test_what_is_just_allowed_passes(bls: dict[str, ModuleType]) -> None:
    tensors = {
        "text_input": words("x" * 10),
        "stop_words": words("abcd", "é"),
        "max_tokens": number(8),
        "task": words("code"),
    }
    assert refused(bls, bls["limits"].Limits(**SMALL), **tensors) is None


def test_without_parameters_there_are_limits_and_0_means_none(bls: dict[str, ModuleType]) -> None:
    limits = bls["limits"].Limits.of(parameters(bls))
    assert limits == bls["limits"].Limits(1 << 20, 0, 64, 1024)
    assert refused(bls, limits, text_input=words("x" * (1 << 20 | 1))) is not None
    assert refused(bls, limits, max_tokens=number(2**31 - 1)) is None
    names = ("limit_prompt_bytes", "limit_stop_words", "limit_stop_word_bytes")
    unlimited = bls["limits"].Limits.of(parameters(bls, **dict.fromkeys(names, "0")))
    assert refused(bls, unlimited, text_input=words("x" * (2 << 20)), stop_words=words(*["y" * 2000] * 70)) is None


def parameters(bls: dict[str, ModuleType], **given: str) -> Any:
    values = {name: {"string_value": value} for name, value in given.items()}
    config = {"name": "m", "output": [], "parameters": values}
    return bls["wire"].Parameters({"model_config": json.dumps(config)})


@given(st.lists(st.binary(max_size=12), max_size=5), st.integers(1, 6), st.integers(1, 10))
def test_the_rule_for_words(bls: dict[str, ModuleType], items: list[bytes], most: int, size: int) -> None:
    found = refused(bls, bls["limits"].Limits(stop_words=most, stop_word_bytes=size), stop_words=words(*items))
    assert (found is not None) == (len(items) > most or any(len(item) > size for item in items))


def test_preprocessing_has_the_same_limits_for_the_ensemble(tmp_path: Path) -> None:
    limits = Serving(limits={"stop_words": 3, "prompt_bytes": 2 << 20})
    repository = modelfolder.small_repository(tmp_path, serving=limits)
    served, modules = modelfolder.started(repository / "preprocessing")
    config = modelfolder.arguments(repository / "tensorrt_llm_bls")
    theirs = modules["limits"].Limits.of(modules["wire"].Parameters(config))
    assert theirs == modules["limits"].Limits(2 << 20, 0, 3, 1024)
    tensors = {"QUERY": words("hi"), "REQUEST_OUTPUT_LEN": number(1), "STOP_WORDS_DICT": words(*"abcd")}
    answer = served.execute([fakepb.Request(tensors)])[0]
    assert re.fullmatch(r"STOP_WORDS_DICT holds 4 words; .* at most 3", answer.error().message())
