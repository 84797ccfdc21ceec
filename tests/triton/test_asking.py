"""What the models are told in each call, where vocabularies, ends and defaults make a difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.triton import fakepb
from tests.triton.modelfolder import EOS, ids_of, small_repository
from tests.triton.scripted import VOCAB, Asked, ask
from trtspec.config.serving import Serving

TRUTH = "the quick brown fox"


def _calls(asked: Asked, model: str = "tensorrt_llm") -> list[fakepb.Tensors]:
    return [tensors for name, tensors in asked.script.calls if name == model]


@pytest.mark.parametrize("tokens", [5, 0])
def test_logits_of_an_answer_that_ends_where_a_call_begins(repository: Path, tokens: int) -> None:
    """The last call of the target brings no token, and its logits have no width."""
    said = [*ids_of(TRUTH)[:tokens], EOS]
    asked = ask(repository, said, return_generation_logits=True, return_log_probs=True)
    assert (asked.text, asked["finish_reason"]) == (TRUTH[:tokens], "end_id")
    assert asked["generation_logits"].shape == (1, 1, tokens, VOCAB if tokens else 1)
    assert asked["output_log_probs"].shape == (1, 1, tokens)


def test_a_draft_with_fewer_ids_is_asked_nothing_that_it_does_not_know(tmp_path: Path) -> None:
    size = 200  # the space of the text is 224
    repository = small_repository(tmp_path, draft_vocab_size=size)
    known = [token for token in ids_of(TRUTH) if token < size][:3]
    asked = ask(
        repository,
        [*ids_of(TRUTH), EOS],
        lambda position, wanted: known[position : position + wanted],
        end_id=230,
        engine_end_id=230,
        bad_words=["~", " "],
        stop_words=["z z"],
    )
    assert (asked.text, asked["spec_mode"]) == (TRUTH, "target-only:inputs")
    (draft,) = _calls(asked, "tensorrt_llm_draft")
    assert draft["input_ids"].max() < size
    assert "end_id" not in draft
    assert draft["bad_words_list"].tolist() == [[ids_of("~"), [1]]]
    assert "stop_words_list" not in draft
    target = _calls(asked)[0]
    assert (target["end_id"].item(), target["bad_words_list"].shape) == (230, (1, 2, 2))


def test_the_servers_default_may_be_to_repeat_the_prompt(tmp_path: Path) -> None:
    repository = small_repository(tmp_path, serving=Serving(exclude_input_in_output=False))
    assert ask(repository, [*ids_of("ab"), EOS]).text == "pab"
    assert ask(repository, [*ids_of("ab"), EOS], exclude_input_in_output=True).text == "ab"
