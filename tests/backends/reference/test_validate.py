"""Every refusal is one clear line, given before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trtspec.backends.reference.config import EngineConfig
from trtspec.backends.reference.request import Request, Sampling
from trtspec.backends.reference.validate import check_request

CONFIG = EngineConfig(2, 20, 30, 10, 4, 50, "float32", "torch-linear", True, 1, 4, 5)
GOOD = Request("r", tuple(range(10)), 5)


def test_good_requests_pass() -> None:
    check_request(GOOD, CONFIG)
    check_request(replace(GOOD, input_ids=tuple(range(20)), max_new_tokens=10), CONFIG)
    check_request(replace(GOOD, embedding_bias=np.zeros(50, np.float32)), CONFIG)
    check_request(
        replace(GOOD, draft_ids=(1, 2), draft_logits=np.zeros((2, 50), np.float32), acceptance_threshold=1.0), CONFIG
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input_ids": ()}, "input_ids is empty"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"input_ids": (1,) * 21}, "the input of 21 tokens is longer than the engine's max_input_len 20"),
        ({"input_ids": (1,) * 18, "draft_ids": (1,) * 3}, "the input of 18 tokens with 3 draft tokens is longer"),
        ({"max_new_tokens": 21}, "10 input tokens and 21 new tokens are more than the engine's max_seq_len 30"),
        ({"draft_ids": (1,) * 5}, "5 draft tokens are more than the engine's max_draft_len 4"),
        ({"draft_ids": (1,), "draft_logits": np.zeros((2, 50))}, r"shape \[2, 50\]; expected \[1, 50\]"),
        ({"acceptance_threshold": 0.0}, "acceptance_threshold is 0.0"),
        ({"sampling": Sampling(temperature=-1)}, "temperature is -1"),
        ({"sampling": Sampling(temperature=float("nan"))}, "temperature is nan"),
        ({"sampling": Sampling(top_k=-1)}, "top_k is -1"),
        ({"sampling": Sampling(top_p=float("nan"))}, "top_p is not a number"),
        ({"sampling": Sampling(seed=-1)}, "seed is -1"),
        ({"sampling": Sampling(seed=2**64)}, "64 bits"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"presence_penalty": float("inf")}, "presence_penalty is inf"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty is nan"),
        ({"min_tokens": -1}, "min_tokens is -1"),
        ({"input_ids": (1, 50)}, "input_ids holds 50, which is not in the vocabulary of 50"),
        ({"draft_ids": (-1,)}, "draft_ids holds -1"),
        ({"end_ids": frozenset({99})}, "end_ids holds 99"),
        ({"bad_words": ((3, 77),)}, "bad_words holds 77"),
        ({"bad_words": ((),)}, "empty id sequence"),
        ({"stop_words": ((),)}, "empty id sequence"),
        ({"embedding_bias": np.zeros(49)}, r"embedding_bias has shape \[49\]; expected \[50\]"),
        ({"embedding_bias": np.full(50, -np.inf)}, "embedding_bias holds a value that is not finite"),
    ],
)
def test_bad_requests_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        check_request(replace(GOOD, **changes), CONFIG)
    assert "\n" not in str(caught.value)
