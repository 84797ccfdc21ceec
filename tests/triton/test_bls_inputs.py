"""Inputs that reach the models in a certain way, or that only requests without drafts may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.triton import fakepb
from tests.triton.modelfolder import BOS, EOS, EOT, byte_tokenizer, ids_of, small_repository
from tests.triton.scripted import VOCAB, Asked, Script, ask, tensor
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.config.serving import Serving

TRUTH = "the quick brown fox"
SAMPLED: dict[str, Any] = {"use_draft_logits": True, "top_p": 1.0}


def _calls(asked: Asked, model: str = "tensorrt_llm") -> list[fakepb.Tensors]:
    return [tensors for name, tensors in asked.script.calls if name == model]


def _ids(asked: Asked) -> list[int]:
    """The prompts of the target's calls, by their second token."""
    return [int(tensors["input_ids"][0, 1]) for tensors in _calls(asked)]


@pytest.fixture(scope="module")
def two_prompts() -> np.ndarray[Any, Any]:
    return np.array([[b"p"], [b"q"]], dtype=np.object_)


def _batch(repository: Path, texts: np.ndarray[Any, Any], **inputs: Any) -> Asked:
    """Two prompts; every other input once for each."""
    twice = {name: np.repeat(tensor(value), 2, axis=0) for name, value in inputs.items()}
    return ask(repository, [*ids_of(TRUTH), EOS], **{"text_input": texts, "num_draft_tokens": None} | twice)


def test_two_prompts_in_one_request_get_an_answer_each(repository: Path, two_prompts: Any) -> None:
    asked = _batch(repository, two_prompts, max_tokens=9)
    shown = [(r.tensors()["batch_index"].tolist(), r.tensors()["text_output"].tolist()) for r in asked.responses]
    assert shown == [([[0]], [b"the quick"]), ([[1]], [b"the quick"])]
    assert asked["spec_mode"] == "target-only:inputs"
    assert sorted(set(_ids(asked))) == sorted(ids_of("pq"))
    assert asked.script.count("tensorrt_llm_draft") == 0


def test_streams_of_two_prompts_come_one_after_the_other(repository: Path, two_prompts: Any) -> None:
    asked = _batch(repository, two_prompts, max_tokens=19, stream=True)
    texts = ["", ""]
    for response in asked.responses:
        texts[int(response.tensors()["batch_index"].item())] += response.tensors()["text_output"][0].decode()
    assert texts == [TRUTH, TRUTH]
    assert len(asked.responses) > 2


def test_two_prompts_with_drafts_are_refused(repository: Path, two_prompts: Any) -> None:
    asked = _batch(repository, two_prompts, max_tokens=9, num_draft_tokens=4)
    assert asked.error == "text_input with 2 prompts does not go together with draft tokens; send num_draft_tokens 0"


def test_several_sequences_are_drawn_with_several_seeds(repository: Path) -> None:
    asked = ask(
        repository, [*ids_of("ab"), EOS], num_draft_tokens=0, num_return_sequences=3,
        seed=np.array([[2**64 - 1]], dtype=np.uint64), top_p=1.0,
    )  # fmt: skip
    assert [int(r.tensors()["sequence_index"].item()) for r in asked.responses] == [0, 1, 2]
    assert [int(t["seed"].item()) for t in _calls(asked)] == [2**64 - 1, 0, 1]
    assert all("num_return_sequences" not in tensors for tensors in _calls(asked))


def test_beams_come_together(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def target(self: Script, tensors: fakepb.Tensors) -> Any:
        ids = [ids_of("abSTOPc"), ids_of("xyz") + [-1] * 4]
        yield {
            "output_ids": np.array([ids], dtype=np.int32),
            "sequence_length": np.array([[7, 3]], dtype=np.int32),
            "cum_log_probs": np.array([[-1.0, -2.0]], dtype=np.float32),
            "output_log_probs": np.zeros((1, 2, 7), dtype=np.float32),
        }

    monkeypatch.setattr(Script, "_target", target)
    how = {"num_draft_tokens": None, "beam_width": 2, "return_log_probs": True, "return_perf_metrics": True}
    asked = ask(repository, TRUTH, stop_words=["STOP"], return_num_output_tokens=True, **how)
    assert asked["text_output"].tolist() == [b"ab", b"xyz"]
    assert (asked["cum_log_probs"].tolist(), asked["output_log_probs"].shape) == ([[-1.0, -2.0]], (1, 2, 7))
    assert (asked["spec_mode"], asked["num_output_tokens"], asked["total_draft_tokens"]) == (
        "target-only:inputs",
        10,
        0,
    )
    (call,) = _calls(asked)
    assert (call["beam_width"].item(), call["request_output_len"].item()) == (2, 50)
    whole = ask(repository, TRUTH, exclude_input_in_output=False, stop_words=["STOP"], **how)
    assert whole["text_output"].tolist() == [b"pab", b"pxyz"]


PERF = (
    "acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens", "arrival_time_ns",
    "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns", "kv_cache_alloc_new_blocks",
    "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks",
)  # fmt: skip


@pytest.mark.parametrize("k", [0, 4])
@pytest.mark.parametrize("stream", [False, True])
def test_all_ten_figures_come_with_any_request(repository: Path, k: int, stream: bool) -> None:
    asked = ask(repository, [*ids_of(TRUTH), EOS], num_draft_tokens=k, stream=stream, return_perf_metrics=True)
    last = asked.responses[-1].tensors()
    assert {last[name].shape for name in PERF} == {(1, 1)}
    assert all(last[name].item() > 0 for name in PERF if name.endswith("_ns"))
    if k == 0:
        assert [last[name].item() for name in PERF[:3]] == [0.0, 0, 0]


def test_times_of_models_that_keep_none(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Script._target

    def target(self: Script, tensors: fakepb.Tensors) -> Any:
        for answer in whole(self, tensors):
            yield {name: array for name, array in answer.items() if not name.endswith("_ns")}

    monkeypatch.setattr(Script, "_target", target)
    asked = ask(repository, TRUTH, return_perf_metrics=True, max_tokens=12)
    times = [asked[name] for name in PERF if name.endswith("_ns")]
    assert 0 < times[0] <= times[1] == times[2] < times[3]


def test_a_requests_threshold_goes_before_the_servers(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, acceptance="logits", acceptance_threshold=0.5)
    for wish, sent in ((None, 0.5), (0.25, 0.25)):
        asked = ask(repository, TRUTH, draft_acceptance_threshold=wish, top_p=1.0)
        judged = [tensors for tensors in _calls(asked) if "draft_logits" in tensors]
        assert judged
        assert {float(tensors["draft_acceptance_threshold"].item()) for tensors in judged} == {sent}


@pytest.mark.parametrize(
    "inputs",
    [
        {"top_p": None},
        {"temperature": 0.0},
        {"top_k": 1},
        {"repetition_penalty": 1.2},
        {"frequency_penalty": 0.5},
        {"bad_words": ["q"]},
        {"embedding_bias_words": ["q"], "embedding_bias_weights": [1.0]},
    ],
)
def test_acceptance_by_tokens_where_logits_would_say_nothing_or_too_little(
    repository: Path, inputs: dict[str, Any]
) -> None:
    asked = ask(repository, TRUTH, **SAMPLED | inputs)
    assert not any("draft_logits" in tensors for tensors in _calls(asked))
    assert all("return_generation_logits" not in t for t in _calls(asked, "tensorrt_llm_draft"))
    assert all("end_id" in tensors for tensors in _calls(asked, "tensorrt_llm_draft"))


def test_neutral_penalties_change_nothing(repository: Path) -> None:
    asked = ask(repository, TRUTH, **SAMPLED, repetition_penalty=1.0, presence_penalty=0.0)
    assert any("draft_logits" in tensors for tensors in _calls(asked))


def test_by_logits_the_draft_may_propose_the_end(repository: Path) -> None:
    """The end token is accepted with what stands before it, and what would stand behind it is not sent."""
    said = [*ids_of("ab"), EOS]
    asked = ask(repository, said, lambda at, wanted: [*said, BOS, BOS][at : at + wanted], **SAMPLED)
    assert (asked.text, asked["finish_reason"]) == ("ab", "end_id")
    assert "end_id" not in _calls(asked, "tensorrt_llm_draft")[0]
    assert _calls(asked)[0]["draft_input_ids"].tolist() == [said]
    assert _calls(asked)[0]["draft_logits"].shape == (1, 3, VOCAB)
    histogram = asked["spec_histogram"][0]
    assert (histogram[1, 3, 2], histogram.sum(), asked["spec_tested"]) == (1, 1, 2)


def test_before_min_tokens_the_draft_must_not_end(repository: Path) -> None:
    asked = ask(repository, [*ids_of("abcdefgh"), EOS], **SAMPLED, min_tokens=4)
    first, *others = _calls(asked, "tensorrt_llm_draft")
    assert (first["end_id"].item(), first["min_tokens"].item(), first["request_output_len"].item()) == (EOS, 4, 3)
    assert all("end_id" not in tensors and tensors["min_tokens"].item() == 0 for tensors in others)
    row = _calls(asked)[0]["draft_logits"][0, 0]
    assert set(row[[EOS, EOT]]) == {np.finfo(np.float32).min}, "they could not be drawn"


def test_logits_are_handed_on_as_the_draft_drew_them(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).normal(size=(4, VOCAB)).astype(np.float32)

    def draft(self: Script, tensors: fakepb.Tensors) -> Any:
        ids = ids_of(TRUTH)[self._position(tensors) :][: tensors["request_output_len"].item()]
        yield {
            "output_ids": np.array([[ids]], dtype=np.int32),
            "sequence_length": np.array([[len(ids)]], dtype=np.int32),
            "generation_logits": rows[: len(ids)][None, None],
        }

    monkeypatch.setattr(Script, "_draft", draft)
    asked = ask(repository, TRUTH, use_draft_logits=True, temperature=0.5, top_k=3)
    handed = _calls(asked)[0]["draft_logits"][0].astype(np.float64)
    weights = np.exp(handed - handed.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    for row, found in zip(rows, weights, strict=True):
        best = np.argsort(-row)[:3]
        expected = np.exp(row[best] / 0.5 - row[best[0]] / 0.5)
        assert found[best] == pytest.approx(expected / expected.sum(), rel=1e-5)
        assert np.count_nonzero(found) == 3


def test_logits_as_wide_as_the_targets(tmp_path: Path) -> None:
    """A narrower draft's lack is filled up with what can never be drawn; a wider one must not draw the surplus."""
    narrow = small_repository(tmp_path / "narrow", vocab_size=264, draft_vocab_size=260)
    asked = ask(narrow, TRUTH, **SAMPLED)
    assert _calls(asked)[0]["draft_logits"].shape == (1, 4, 264)
    assert set(_calls(asked)[0]["draft_logits"][0, :, 260:].reshape(-1)) == {np.finfo(np.float32).min}
    wide = small_repository(tmp_path / "wide", vocab_size=257, draft_vocab_size=260)
    asked = ask(wide, TRUTH, **SAMPLED)
    assert _calls(asked)[0]["draft_logits"].shape == (1, 4, 257)
    bias = _calls(asked, "tensorrt_llm_draft")[0]["embedding_bias"]
    assert (bias.shape, np.flatnonzero(bias).tolist()) == ((1, 260), [257, 258, 259])
    assert all("embedding_bias" not in tensors for tensors in _calls(asked))


def test_a_draft_token_that_the_target_lacks_ends_the_draft(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, vocab_size=257)
    asked = ask(repository, TRUTH, lambda at, wanted: [*ids_of(TRUTH)[at : at + 2], 258][:wanted])
    assert asked.text == TRUTH
    assert _calls(asked)[0]["draft_input_ids"].tolist() == [ids_of("th")]


def test_the_bias_fits_each_model(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, vocab_size=264, draft_vocab_size=260)
    asked = ask(repository, TRUTH, embedding_bias_words=["a"], embedding_bias_weights=[2.0])
    for model, width in (("tensorrt_llm", 264), ("tensorrt_llm_draft", 260)):
        for tensors in _calls(asked, model):
            assert tensors["embedding_bias"].shape == (1, width)
            assert np.flatnonzero(tensors["embedding_bias"]).tolist() == ids_of("a")


def _handles(repository: Path, monkeypatch: pytest.MonkeyPatch, **inputs: Any) -> Asked:
    handle = np.array([1.5, 2.5, 3.5], dtype=np.float32)

    def draft(self: Script, tensors: fakepb.Tensors) -> Any:
        ids = [*ids_of(TRUTH), EOS][self._position(tensors) :][: tensors["request_output_len"].item()]
        yield {
            "output_ids": np.array([[ids]], dtype=np.int32),
            "sequence_length": np.array([[len(ids)]], dtype=np.int32),
            "generation_logits": handle.reshape(1, 1, 1, 3),
        }

    monkeypatch.setattr(Script, "_draft", draft)
    return ask(repository, [*ids_of(TRUTH), EOS], **inputs)


def test_fast_logits_are_a_handle_that_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = small_repository(tmp_path, backend="tensorrt")
    from trtspec.triton import pbtxt

    path = repository / "tensorrt_llm_bls" / pbtxt.FILE
    path.write_text(
        path.read_text().replace(
            'key: "speculative_decoding_fast_logits"\n  value {\n    string_value: "false"',
            'key: "speculative_decoding_fast_logits"\n  value {\n    string_value: "true"',
        )
    )
    asked = _handles(repository, monkeypatch, **SAMPLED)
    assert asked.text == TRUTH
    judged = [tensors for tensors in _calls(asked) if "draft_input_ids" in tensors]
    assert all(tensors["draft_logits"].tolist() == [[[1.5, 2.5, 3.5]]] for tensors in judged)
    # The handle stands for the raw logits: with a temperature they are not what was drawn from.
    for inputs in ({"temperature": 0.7}, {"top_k": 3}, {"top_p": 0.9}, {"bad_words": ["q"]}):
        assert not any("draft_logits" in t for t in _calls(_handles(repository, monkeypatch, **SAMPLED | inputs)))
    below = _calls(_handles(repository, monkeypatch, **SAMPLED, min_tokens=4))
    assert ["draft_logits" in tensors for tensors in below] == [False] + [True] * (len(below) - 1)


def test_calls_have_seeds_of_their_own(repository: Path) -> None:
    def seeds(seed: int | None, **inputs: Any) -> list[int | None]:
        given = None if seed is None else np.array([[seed]], dtype=np.uint64)
        calls = ask(repository, TRUTH, seed=given, **inputs).script.calls
        found = [tensors.get("seed") for model, tensors in calls if model.startswith("tensorrt_llm")]
        return [None if array is None else int(array.item()) for array in found]

    first = seeds(5, top_p=1.0)
    assert first == seeds(5, top_p=1.0)
    assert len(first) > 2
    assert len(set(first)) == len(first)
    assert first[1] == 5, "the target's first call has the request's own"
    assert not set(first) & set(seeds(None, top_p=1.0))
    assert set(seeds(None)) == {None}, "nothing is drawn in a greedy answer"


def test_rows_of_rejected_tokens_are_left_out(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT-LLM returns a row of logits for each draft token, accepted or not."""
    whole = Script._target

    def target(self: Script, tensors: fakepb.Tensors) -> Any:
        wanted = int(tensors["request_output_len"].item())
        for answer in whole(self, tensors):
            rows = answer["generation_logits"]
            spare = np.full((1, 1, wanted - rows.shape[2], VOCAB), -5.0, dtype=np.float32)
            yield answer | {"generation_logits": np.concatenate((rows, spare), axis=2)}

    monkeypatch.setattr(Script, "_target", target)
    guess = lambda at, wanted: [ids_of(TRUTH)[at], BOS, BOS][:wanted]  # noqa: E731
    asked = ask(repository, TRUTH, guess, max_tokens=12, return_generation_logits=True)
    assert asked["generation_logits"][0, 0].argmax(axis=1).tolist() == ids_of(TRUTH[:12])


def test_log_probs_that_do_not_come_are_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Script._target

    def target(self: Script, tensors: fakepb.Tensors) -> Any:
        for answer in whole(self, tensors):
            yield answer | {"output_log_probs": np.zeros((1, 1, 1), dtype=np.float32)}

    monkeypatch.setattr(Script, "_target", target)
    asked = ask(repository, TRUTH, return_log_probs=True)
    assert asked.error == "the target gave 1 log probs for 5 tokens; send num_draft_tokens 0"


def test_at_min_tokens_a_call_ends_and_further_ends_count_again(repository: Path) -> None:
    """Further end ids are for the engines stop words of one token, which know no min_tokens."""
    said = [*ids_of("abcdef"), EOT, *ids_of("xyz")]
    for k in (0, 4):
        asked = ask(repository, said, num_draft_tokens=k, min_tokens=5)
        assert (asked.text, asked["finish_reason"]) == ("abcdef", "end_id")
        for tensors in _calls(asked):
            start = int(tensors["input_lengths"].item()) - 2
            until = start + int(tensors["request_output_len"].item())
            assert until <= 5 or start >= 5
            banned = [EOT] if start < 5 else []
            assert tensors.get("bad_words_list", np.zeros((1, 2, 0)))[0, 0].tolist() == banned


def test_min_tokens_above_max_tokens_means_no_end_at_all(repository: Path) -> None:
    asked = ask(repository, "abcdef", min_tokens=100, max_tokens=6)
    assert (asked.text, asked["finish_reason"]) == ("abcdef", "length")


@pytest.mark.parametrize("adaptive", [False, True])
def test_drafts_grow_shorter_where_little_is_accepted(tmp_path: Path, adaptive: bool) -> None:
    repository = small_repository(tmp_path, serving=Serving(adaptive_draft_len=adaptive))
    asked = ask(repository, TRUTH * 2, lambda _, wanted: [BOS] * wanted, num_draft_tokens=4)
    lengths = [int(t["request_output_len"].item()) for t in _calls(asked, "tensorrt_llm_draft")]
    assert asked.text == TRUTH * 2
    assert lengths[0] == 4
    assert lengths[20:25] == [1 if adaptive else 4] * 5


def test_a_round_of_its_own_for_the_accounts(repository: Path) -> None:
    """A round cut by the end token counts what it keeps; the histogram, the totals and tested agree."""
    said = [*ids_of("abc"), EOT, *ids_of("d")]
    asked = ask(repository, said, lambda at, wanted: said[at : at + wanted], return_perf_metrics=True)
    assert asked["spec_histogram"][0][1, 4, 3] == 1
    assert (asked["total_draft_tokens"], asked["total_accepted_draft_tokens"], asked["spec_tested"]) == (4, 3, 3)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    truth=st.text(alphabet="ab😀", max_size=8),
    drafted=st.lists(st.lists(st.sampled_from(["right", BOS, EOS, EOT]), max_size=4), min_size=40, max_size=40),
    max_tokens=st.integers(1, 40),
    least=st.integers(0, 40),
    further=st.booleans(),
)
def test_any_draft_that_may_end_gives_the_targets_answer(
    repository: Path, truth: str, drafted: list[list[Any]], max_tokens: int, least: int, further: bool
) -> None:
    """Ends proposed too early, too late or just in time, of either kind."""
    ids = ids_of(truth)
    said = [*ids, EOT if further else EOS, *ids_of("more")]
    least = min(least, len(ids))

    def guess(position: int, wanted: int) -> list[int]:
        true = said[position : position + wanted]
        return [t if kind == "right" else kind for t, kind in zip(true, drafted[position % 40], strict=False)][:wanted]

    asked = ask(repository, said, guess, **SAMPLED, max_tokens=max_tokens, min_tokens=least)
    histogram = RoundHistogram.from_wire(asked["spec_histogram"][0])
    kept = min(max_tokens, len(ids))
    ended = asked["finish_reason"] == "end_id"
    assert asked.text == str(byte_tokenizer().decode(ids[:max_tokens]))
    assert ended is (len(ids) < max_tokens)
    assert histogram.emitted == kept + (ended and not histogram.cut.sum())
    assert asked["spec_tested"] == histogram.tested
