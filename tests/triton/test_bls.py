"""The speculative loop against scripted models: the answer is the target's, and every round is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.triton import fakepb
from tests.triton.modelfolder import BOS, EOS, EOT, ids_of
from tests.triton.scripted import ask, perfect
from trtspec.analysis.acceptance import RoundHistogram

TRUTH = "the quick brown fox"


def _histogram(asked: Any) -> RoundHistogram:
    return RoundHistogram.from_wire(asked["spec_histogram"][0])


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("stream", [False, True, None])
def test_the_answer_is_the_targets(repository: Path, k: int, stream: bool | None) -> None:
    _policy(repository, 8)
    asked = ask(repository, [*ids_of(TRUTH), EOS], num_draft_tokens=k, stream=stream)
    assert (asked.text, asked["spec_mode"], asked["finish_reason"]) == (TRUTH, "speculative", "end_id")
    histogram = _histogram(asked)
    assert histogram.emitted == len(TRUTH) + 1  # the end token counts
    assert (histogram.accepted, histogram.tested) == (histogram.drafted, histogram.drafted)
    assert len(asked.responses) == (asked["spec_rounds"] if stream else 1)
    _policy(repository, 4)


def _policy(repository: Path, k: int, **more: object) -> None:
    document = {"version": 1, "default": {"draft_len": k}} | more
    (repository / "tensorrt_llm_bls" / "1" / "policy.json").write_text(json.dumps(document))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    truth=st.text(alphabet="ab😀", max_size=12),
    errors=st.lists(st.booleans(), min_size=60, max_size=60),
    lengths=st.lists(st.integers(0, 4), min_size=60, max_size=60),
    max_tokens=st.integers(1, 60),
    stream=st.booleans(),
)
def test_any_draft_gives_the_targets_answer(
    repository: Path, truth: str, errors: list[bool], lengths: list[int], max_tokens: int, stream: bool
) -> None:
    said = [*ids_of(truth), EOS]

    def guess(position: int, wanted: int) -> list[int]:
        right = perfect(said)(position, min(wanted, lengths[position]))
        return [BOS if errors[position + i] else token for i, token in enumerate(right)]

    asked = ask(repository, said, guess, max_tokens=max_tokens, stream=stream)
    ids = ids_of(truth)[:max_tokens]
    assert asked.text == _decoded(ids)
    histogram = _histogram(asked)
    ended = asked["finish_reason"] == "end_id"
    assert histogram.emitted == len(ids) + ended
    assert ended is (len(ids_of(truth)) < max_tokens)
    assert asked["spec_tested"] == histogram.tested


def _decoded(ids: list[int]) -> str:
    from tests.triton.modelfolder import byte_tokenizer

    return str(byte_tokenizer().decode(ids))


def test_end_token_as_the_second_of_four_accepted(repository: Path) -> None:
    """A further end id is an ordinary token for the engine, so it can stand inside an accepted block."""
    a, b, c, d = ids_of("abcd")
    said = [a, EOT, b, c, d]
    asked = ask(repository, said, lambda position, wanted: said[position : position + wanted])
    assert (asked.text, asked["finish_reason"]) == ("a", "end_id")
    histogram = _histogram(asked)
    # What stands behind the end token is not sent to the target.
    assert (histogram.cut[2, 1], histogram.rounds, histogram.tested, histogram.rejected) == (1, 1, 1, 0)


def test_a_given_end_id_replaces_the_models(repository: Path) -> None:
    said = ids_of("abcd")
    asked = ask(repository, [said[0], EOT, *said[1:]], end_id=said[2], engine_end_id=said[2])
    assert (asked.text, asked["finish_reason"]) == ("ab", "end_id")


def test_stop_word_inside_an_accepted_block(repository: Path) -> None:
    asked = ask(repository, "xSTOPyyyyyy", num_draft_tokens=8, stop_words=["TO"])
    assert (asked.text, asked["finish_reason"]) == ("xS", "stop_words")
    assert (asked["spec_rounds"], _histogram(asked).cut.sum()) == (1, 1)
    assert asked.script.count("tensorrt_llm") == 1


def test_stop_word_split_over_two_rounds(repository: Path) -> None:
    asked = ask(repository, "abcdSTOPxyz", num_draft_tokens=4, stream=True, stop_words=["ST"])
    assert asked.text == "abcd"
    # Round 1 emits abcdS; round 2 accepts TOPx and keeps none of it.
    histogram = _histogram(asked)
    assert (histogram.uncut[4, 4], histogram.cut[4, 0]) == (1, 1)
    assert "S" not in b"".join(r.tensors()["text_output"][0] for r in asked.responses).decode()


def test_two_stop_words(repository: Path) -> None:
    for words in (["zz", "fox"], ["fox", "zz"], ["fox", "brown"]):
        asked = ask(repository, TRUTH, stop_words=words)
        assert asked.text == TRUTH[: min(TRUTH.find(w) for w in words if w in TRUTH)]
        assert asked["finish_reason"] == "stop_words"


def test_empty_stop_words_are_none(repository: Path) -> None:
    assert ask(repository, [*ids_of("ab"), EOS], stop_words=[""]).text == "ab"


def test_max_tokens_bounds_every_draft(repository: Path) -> None:
    asked = ask(repository, TRUTH, max_tokens=7)
    assert (asked.text, asked["finish_reason"]) == (TRUTH[:7], "length")
    wanted = [int(t["request_output_len"].flat[0]) for m, t in asked.script.calls if m == "tensorrt_llm_draft"]
    assert wanted == [4, 1]
    # A draft that returns more than it was asked for is cut to what it was asked for.
    greedy = ask(repository, TRUTH, lambda p, _: ids_of(TRUTH)[p : p + 9], max_tokens=7)
    assert (greedy.text, _histogram(greedy).drafted) == (TRUTH[:7], 5)


def test_max_tokens_cuts_a_block_that_is_too_long(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that returns more than it was asked for must not make the answer longer."""
    asked = ask(repository, TRUTH, max_tokens=1)
    assert (asked.text, asked.script.count("tensorrt_llm_draft")) == ("t", 0)
    assert _histogram(asked).uncut[0, 0] == 1


def test_a_draft_without_tokens_costs_only_the_draft(repository: Path) -> None:
    asked = ask(repository, [*ids_of("abc"), EOS], lambda *_: [])
    assert (asked.text, asked["spec_mode"]) == ("abc", "speculative")
    assert (_histogram(asked).uncut[0, 0], asked["spec_tested"]) == (4, 0)
    assert all("draft_input_ids" not in t for m, t in asked.script.calls if m == "tensorrt_llm")


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_draft_leaves_the_target_alone(repository: Path, after: int, stream: bool) -> None:
    calls: list[int] = []

    def guess(position: int, wanted: int) -> list[int]:
        calls.append(position)
        if len(calls) > after:
            raise RuntimeError("out of memory")
        return perfect(ids_of(TRUTH))(position, wanted)

    asked = ask(repository, [*ids_of(TRUTH), EOS], guess, stream=stream, return_perf_metrics=True)
    assert (asked.text, asked["spec_mode"]) == (TRUTH, "target-only:draft-failed")
    assert asked["spec_rounds"] == after
    assert any("out of memory" in line for line in asked.log)
    assert not any("secret" in line for line in asked.log)


def test_no_draft_tokens_means_the_target_alone(repository: Path) -> None:
    asked = ask(repository, [*ids_of(TRUTH), EOS], num_draft_tokens=0, stream=True, return_perf_metrics=True)
    assert (asked.text, asked["spec_mode"]) == (TRUTH, "target-only:requested")
    assert asked.script.count("tensorrt_llm_draft") == 0
    assert (asked["acceptance_rate"], asked["total_draft_tokens"], asked["spec_rounds"]) == (0.0, 0, 0)


def test_the_server_has_a_default_and_the_policy_a_say(tmp_path: Path, repository: Path) -> None:
    assert ask(repository, TRUTH, num_draft_tokens=None)["spec_mode"] == "speculative"
    _policy(repository, 4, tasks={"legal": {"draft_len": 0}, "code": {"draft_len": 2}}, by_concurrency=[[1, 3]])
    try:
        assert ask(repository, TRUTH, task="legal")["spec_mode"] == "target-only:policy"
        drafted = [_longest(ask(repository, TRUTH, task=t, num_draft_tokens=8)) for t in ("code", "other", None)]
        assert drafted == [2, 3, 3]
    finally:
        _policy(repository, 4)


def _longest(asked: Any) -> int:
    return int(max(np.nonzero((_histogram(asked).uncut + _histogram(asked).cut).sum(axis=1))[0]))


def test_more_draft_tokens_than_the_engine_takes_are_the_engines_most(repository: Path) -> None:
    _policy(repository, 100)
    assert _longest(ask(repository, TRUTH * 2, num_draft_tokens=99)) == 8
    _policy(repository, 4)


def test_logits_travel_from_draft_to_target(repository: Path) -> None:
    asked = ask(repository, TRUTH, use_draft_logits=True, top_p=1.0)
    verify = [t for m, t in asked.script.calls if m == "tensorrt_llm"]
    assert asked.text == TRUTH
    for tensors in verify:
        drafts = tensors.get("draft_input_ids")
        if drafts is not None:
            assert tensors["draft_logits"][0].argmax(axis=1).tolist() == drafts[0].tolist()
        assert "return_generation_logits" not in tensors


def test_sampling_and_words_go_into_every_call(repository: Path) -> None:
    asked = ask(repository, TRUTH, temperature=0.5, top_k=3, bad_words=["q"], min_tokens=6, repetition_penalty=1.5)
    calls = [t for m, t in asked.script.calls if m.startswith("tensorrt_llm")]
    for tensors in calls:
        assert tensors["temperature"].tolist() == [[0.5]]
        assert tensors["runtime_top_k"].tolist() == [[3]]
        assert tensors["repetition_penalty"].tolist() == [[1.5]]
        below = tensors["input_lengths"].item() < 2 + 6
        # The model's further end id: no token before min_tokens, an end afterwards.
        assert tensors["bad_words_list"][0, 0].tolist() == ids_of("q") + [EOT] * below
        assert ("stop_words_list" in tensors) is not below
        assert tensors["end_id"].tolist() == [[EOS]]
        assert tensors["exclude_input_in_output"].all()
    generated = [int(t["input_lengths"].flat[0]) - 2 for t in calls]
    assert [int(t["min_tokens"].flat[0]) for t in calls] == [max(0, 6 - g) for g in generated]
    assert len(asked.script.ids) == 1
    assert next(iter(asked.script.ids)).startswith("r1.")


def test_log_probs_and_logits_are_those_of_the_answers_tokens(repository: Path) -> None:
    asked = ask(
        repository,
        "abcdSTOP",
        return_log_probs=True,
        return_generation_logits=True,
        stop_words=["STOP"],
        num_draft_tokens=3,
    )
    ids = ids_of("abcd")
    assert asked["output_log_probs"].reshape(-1).tolist() == [-float(i) for i in ids]
    assert asked["cum_log_probs"] == -sum(ids)
    assert asked["generation_logits"][0, 0].argmax(axis=1).tolist() == ids


def test_figures_are_of_the_whole_request(repository: Path) -> None:
    wrong = {0, 5}

    def guess(position: int, wanted: int) -> list[int]:
        right = ids_of(TRUTH)[position : position + wanted]
        return [BOS if position + i in wrong else t for i, t in enumerate(right)]

    asked = ask(
        repository,
        TRUTH,
        guess,
        max_tokens=12,
        return_perf_metrics=True,
        return_num_input_tokens=True,
        return_num_output_tokens=True,
    )
    histogram = _histogram(asked)
    assert asked["total_draft_tokens"] == histogram.drafted
    assert asked["total_accepted_draft_tokens"] == histogram.accepted
    assert asked["acceptance_rate"] == pytest.approx(histogram.accepted / histogram.drafted)
    assert (asked["num_input_tokens"], asked["num_output_tokens"]) == (2, 12)
    assert asked["kv_cache_reused_blocks"] == asked.script.count("tensorrt_llm")
    assert asked["arrival_time_ns"] > 0


def test_counts_of_a_stream_add_up(repository: Path) -> None:
    asked = ask(repository, "a😀b😀c", max_tokens=11, stream=True, return_num_output_tokens=True, num_draft_tokens=1)
    assert sum(int(r.tensors()["num_output_tokens"].flat[0]) for r in asked.responses) == 11
    for response in asked.responses:
        response.tensors()["text_output"][0].decode()  # every piece is whole characters


@pytest.mark.parametrize(("exclude", "text"), [(None, "ab"), (True, "ab"), (False, "pab")])
def test_the_prompt_is_left_out_unless_asked_for(repository: Path, exclude: bool | None, text: str) -> None:
    asked = ask(repository, [*ids_of("ab"), EOS], exclude_input_in_output=exclude)
    assert asked.text == text


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_input": ["a", "b"]}, "text_input holds 2 texts for one prompt"),
        ({"beam_width": 2}, "beam_width 2 does not go together with draft tokens; send num_draft_tokens 0"),
        ({"beam_width": 0}, "beam_width is 0; it must be at least 1"),
        ({"num_return_sequences": 2}, "num_return_sequences 2 does not go together with draft tokens; "),
        ({"min_tokens": -1}, "min_tokens is -1; it cannot be negative"),
        ({"draft_acceptance_threshold": 1.5}, "draft_acceptance_threshold is 1.5; it must be above 0 and at most 1"),
        ({"num_draft_tokens": -1}, "num_draft_tokens is -1; it must be 0 (no speculation) or more"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"image_url_input": "x"}, "image_url_input: this pipeline takes text only"),
        ({"return_context_logits": True}, "return_context_logits does not go together with draft tokens; "),
        ({"text_input": "x" * 64}, "the prompt has 65 tokens; this server takes at most 64"),
        ({"text_input": np.array([[b"\xff"]], dtype=np.object_)}, "text_input is not UTF-8 text"),
        ({"bad_words": np.array([[b"\xff"]], dtype=np.object_)}, "bad_words is not UTF-8 text"),
        ({"end_id": 260}, "end_id is 260; it must be below 260, the size of the vocabulary"),
        ({"max_tokens": 127}, "the prompt has 2 tokens and max_tokens is 127; "),
    ],
)
def test_what_cannot_be_done_is_one_line(repository: Path, inputs: dict[str, Any], message: str) -> None:
    asked = ask(repository, TRUTH, **inputs)
    assert asked.error.startswith(message)
    assert "\n" not in asked.error
    assert len(asked.responses) == 1


def test_a_failing_target_is_one_line(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.triton.scripted import Script

    monkeypatch.setattr(Script, "_target", lambda *_: iter([RuntimeError("engine is full")]))
    assert ask(repository, TRUTH).error == "engine is full"
    monkeypatch.setattr(Script, "_target", lambda *_: iter([]))
    assert ask(repository, TRUTH).error == "model tensorrt_llm gave no answer"


def test_an_internal_error_tells_the_client_nothing_of_the_prompt(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.triton.scripted import Script

    monkeypatch.setattr(Script, "_target", lambda *_: iter([{"output_ids": np.zeros(0)}]))
    asked = ask(repository, TRUTH, text_input="secret words")
    assert asked.error == "internal error (KeyError); see the server's log"
    assert not any("secret" in line for line in asked.log)


@pytest.mark.parametrize("k", [0, 2])
def test_a_client_that_leaves_stops_the_work(repository: Path, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.triton.scripted import Script

    slow = Script._target

    def target(self: Script, tensors: fakepb.Tensors) -> Any:
        import time

        for answer in slow(self, tensors):
            time.sleep(0.06)
            yield answer

    monkeypatch.setattr(Script, "_target", target)
    asked = ask(repository, "x" * 60, num_draft_tokens=k, stream=True, sender=fakepb.Sender(gone_after=2))
    assert asked.responses[-1].error().code() == "CANCELLED"
    assert asked.script.count("tensorrt_llm") < 8
    assert asked.script.stopped == ["tensorrt_llm"]


def test_unknown_parameters_are_named_in_the_log(repository: Path) -> None:
    parameters = '{"num_draft_token": 3, "timeout_ms": 5, "timeout": 0, "triton_enable_empty_final_response": true}'
    asked = ask(repository, TRUTH, parameters=parameters)
    [names] = [json.loads(line)["names"] for line in asked.log if "unknown-inputs" in line]
    assert names == ["num_draft_token", "timeout_ms"]
