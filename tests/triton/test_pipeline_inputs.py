"""Inputs of all kinds through a real Triton: the pair's answer is the target's own, or one line says why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.triton.test_pipeline import ALONE, BLS, PROMPTS, built, client, server  # noqa: F401  fixtures
from trtspec.triton.client import TritonClient
from trtspec.triton.failures import RequestError
from trtspec.triton.payload import flag, number, strings

pytestmark = [pytest.mark.triton, pytest.mark.torch, pytest.mark.slow]


def _all(client: TritonClient, model: str, **tensors: Any) -> list[dict[str, Any]]:  # noqa: F811
    given = {"text_input": strings([PROMPTS[1]]), "max_tokens": number(16)} | tensors
    with client._connection.exchange(model, given, "raw", 60.0) as exchange:
        return list(exchange)


def _one(client: TritonClient, model: str = BLS, **tensors: Any) -> dict[str, Any]:  # noqa: F811
    (answer,) = _all(client, model, **tensors)
    return answer


def _text(answer: dict[str, Any]) -> str:
    return str(answer["text_output"][0].decode())


def _real(value: float) -> np.ndarray[Any, Any]:
    return np.array([[value]], dtype=np.float32)


def _alone(client: TritonClient, **tensors: Any) -> str:  # noqa: F811
    return _text(_one(client, ALONE, exclude_input_in_output=flag(True), **tensors))


@pytest.mark.parametrize(
    "rules",
    [
        {"repetition_penalty": _real(1.4)},
        {"presence_penalty": _real(0.8), "frequency_penalty": _real(0.4)},
        {"bad_words": strings(["def", "class"])},
        {"min_tokens": number(12)},
        {"embedding_bias_words": strings([" self", "def"]), "embedding_bias_weights": np.array([[3.0, -50.0]], "f4")},
    ],
    ids=["repetition", "presence and frequency", "bad words", "min_tokens", "bias"],
)
def test_rules_hold_in_every_round(client: TritonClient, rules: dict[str, Any]) -> None:  # noqa: F811
    """Penalties see what earlier rounds accepted: K does not show in a greedy answer."""
    alone = _alone(client, **rules)
    for k in (0, 1, 4):
        assert _text(_one(client, num_draft_tokens=number(k), **rules)) == alone
    assert alone != _alone(client) or "min_tokens" in rules


@pytest.mark.parametrize("logits", [False, True], ids=["tokens", "logits"])
def test_drawn_answers_repeat_and_obey(client: TritonClient, logits: bool) -> None:  # noqa: F811
    rules = {"bad_words": strings(["def", "class", " self"]), "use_draft_logits": flag(logits), "top_p": _real(0.9)}

    def texts() -> list[str]:
        seeds = [np.array([[seed]], dtype=np.uint64) for seed in range(6)]
        return [_text(_one(client, num_draft_tokens=number(4), seed=seed, **rules)) for seed in seeds]

    drawn = texts()
    assert drawn == texts()
    assert len(set(drawn)) > 1
    assert not any(word in text for text in drawn for word in ("class", " self"))


def test_several_prompts_and_sequences(client: TritonClient) -> None:  # noqa: F811
    two = np.array([[PROMPTS[1].encode()], [PROMPTS[3].encode()]], dtype=np.object_)
    lengths = np.array([[12], [9]], dtype=np.int32)
    answers = _all(client, BLS, text_input=two, max_tokens=lengths)
    assert [int(answer["batch_index"].item()) for answer in answers] == [0, 1]
    assert [_text(a) for a in answers] == [
        _alone(client, text_input=strings([PROMPTS[i]]), max_tokens=number(n)) for i, n in ((1, 12), (3, 9))
    ]
    drawn = {"num_return_sequences": number(3), "top_p": _real(1.0), "temperature": _real(1.2)}
    seeds = [np.array([[seed]], dtype=np.uint64) for seed in (3, 4, 5)]
    answers = _all(client, BLS, seed=seeds[0], **drawn)
    assert [int(answer["sequence_index"].item()) for answer in answers] == [0, 1, 2]
    del drawn["num_return_sequences"]
    assert [_text(a) for a in answers] == [_alone(client, seed=seed, **drawn) for seed in seeds]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"beam_width": number(2)}, "beam_width is 2; the reference engine does 1"),
        ({"beam_width": number(2), "num_draft_tokens": number(2)}, "beam_width 2 does not go together with draft"),
        ({"prompt_vocab_size": number(2)}, "the reference engine does not support prompt_vocab_size"),
        ({"draft_acceptance_threshold": _real(2.0)}, "draft_acceptance_threshold is 2; it must be above 0"),
    ],
)
def test_what_cannot_be_done_is_one_line(client: TritonClient, tensors: dict[str, Any], message: str) -> None:  # noqa: F811
    with pytest.raises(RequestError, match=f"^model {BLS}: {message}") as caught:
        _one(client, **tensors)
    assert caught.value.kind == "refused"
    assert "Traceback" not in str(caught.value)


def test_all_figures_come_with_a_plain_request(client: TritonClient) -> None:  # noqa: F811
    answer = _one(client, num_draft_tokens=number(0), return_perf_metrics=flag(True))
    assert [
        answer[name].item() for name in ("acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens")
    ] == [
        0.0,
        0,
        0,
    ]
    times = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
    assert all(answer[name].item() > 0 for name in times)
    assert {answer[f"kv_cache_{name}_blocks"].shape for name in ("alloc_new", "reused", "alloc_total")} == {(1, 1)}


def test_a_threshold_accepts_more_and_is_passed_on(client: TritonClient) -> None:  # noqa: F811
    """By a fixed threshold near 0 every draft token is accepted that the target does not exclude."""
    drawn = {"top_p": _real(1.0), "seed": np.array([[3]], dtype=np.uint64), "use_draft_logits": flag(True)}
    given = drawn | {"num_draft_tokens": number(4), "return_perf_metrics": flag(True)}
    low = _one(client, draft_acceptance_threshold=_real(1e-6), **given)
    high = _one(client, draft_acceptance_threshold=_real(1.0), **given)
    assert low["acceptance_rate"].item() == 1.0 > high["acceptance_rate"].item()


def test_a_four_byte_character_split_over_rounds_comes_whole(client: TritonClient) -> None:  # noqa: F811
    """Its bytes are tokens of their own, made likely by the bias."""
    pieces = _all(
        client,
        BLS,
        text_input=strings([PROMPTS[4]]),
        stream=flag(True),
        num_draft_tokens=number(1),
        max_tokens=number(40),
        embedding_bias_words=strings(["😀"]),
        embedding_bias_weights=_real(50.0),
    )
    assert all("�" not in _text(piece) for piece in pieces[:-1])
    assert "".join(_text(piece) for piece in pieces) == _alone(
        client,
        text_input=strings([PROMPTS[4]]),
        max_tokens=number(40),
        embedding_bias_words=strings(["😀"]),
        embedding_bias_weights=_real(50.0),
    )
