"""Logits at chosen positions and padded answers are those of transformers' own calls, in every family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from tests.backends.reference.families import VOCAB, oracle  # noqa: E402
from trtspec.distil.generate import Asked, Writing, answer  # noqa: E402
from trtspec.distil.model import Answering, logits_at, padded  # noqa: E402
from trtspec.distil.texts import Text  # noqa: E402

pytestmark = pytest.mark.torch
FAMILIES = ["llama", "mistral", "qwen2", "qwen3-tied", "gemma2", "gemma3", "phi3", "mixtral"]


def ids(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, VOCAB, length).tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_at_counted_positions_are_the_models(family: str) -> None:
    model = oracle(family)
    texts = [Text(np.array(ids(i, n), np.int32), p) for i, (n, p) in enumerate([(14, 4), (9, 8), (20, 1)])]
    with torch.no_grad():
        found = logits_at(model, *padded(texts, "cpu"))
        wanted = [model(torch.tensor([t.ids.tolist()[:-1]])).logits[0, t.prompt - 1 :] for t in texts]
    torch.testing.assert_close(found, torch.cat(wanted), atol=2e-4, rtol=1e-4)
    assert len(found) == sum(len(t.answer) for t in texts)


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_side_by_side_are_those_alone(family: str) -> None:
    model = oracle(family)
    prompts = [ids(5, 3), ids(6, 12), ids(7, 9)]
    how = Writing(temperature=0.0, end_ids=frozenset(), keep=4)
    found = answer(model, [Asked(tuple(p), 10) for p in prompts], how)
    for prompt, text in zip(prompts, found, strict=True):
        want: list[int] = list(prompt)
        for _ in range(10):
            with torch.no_grad():
                want.append(int(model(torch.tensor([want])).logits[0, -1].argmax()))
        assert text.ids.tolist() == want
        assert text.top_ids is not None
        assert text.top_ids[:, 0].tolist() == text.answer.tolist()


def test_kept_log_probabilities_are_those_of_the_softened_model() -> None:
    model = oracle("llama")
    how = Writing(temperature=0.0, end_ids=frozenset(), keep=5, soften=2.0)
    (text,) = answer(model, [Asked(tuple(ids(1, 6)), 4)], how)
    with torch.no_grad():
        logits = model(torch.tensor([text.ids.tolist()[:-1]])).logits[0, text.prompt - 1 :]
    want, at = torch.log_softmax(logits / 2.0, -1).topk(5, -1)
    assert text.top_ids is not None
    assert np.array_equal(text.top_ids, at.numpy())
    assert np.allclose(np.asarray(text.top_logprobs, np.float32), want.numpy(), atol=5e-3)


def test_an_answer_ends_behind_its_end_token_or_at_its_length() -> None:
    model = oracle("llama")
    asked = [Asked(tuple(ids(2, 4)), 20), Asked(tuple(ids(3, 7)), 5)]
    free = answer(model, asked, Writing(0.0, frozenset(), 0))
    end = int(free[0].answer[3])
    cut = answer(model, asked, Writing(0.0, frozenset({end}), 0))
    first = free[0].answer.tolist().index(end)
    assert cut[0].answer.tolist() == free[0].answer.tolist()[: first + 1]
    assert len(free[1].answer) == 5


def test_draws_depend_on_seed_and_shard_alone() -> None:
    model = oracle("llama")
    asked = [Asked(tuple(ids(2, 4)), 12)] * 3

    def drawn(seed: int, number: int) -> Any:
        return [t.ids.tolist() for t in answer(model, asked, Writing(1.0, frozenset(), 0, seed=seed), 0, number)]

    assert drawn(1, 0) == drawn(1, 0)
    assert drawn(1, 0) != drawn(1, 1)
    assert drawn(1, 0) != drawn(2, 0)
    assert len({tuple(t) for t in drawn(1, 0)}) == 3


def test_a_second_greedy_answer_is_led_elsewhere_and_then_greedy() -> None:
    model = oracle("llama")
    asked = [Asked(tuple(ids(2, 4)), 16)]
    how = Writing(0.0, frozenset(), 0)
    first, second = (answer(model, asked, how, turn, 1)[0] for turn in (0, 1))
    assert first.ids.tolist() != second.ids.tolist()
    with torch.no_grad():
        after = model(torch.tensor([second.ids.tolist()[:-1]])).logits[0].argmax(-1).tolist()
    lead = second.prompt + 8
    assert after[lead - 1 :] == second.ids.tolist()[lead:]


def test_padding_on_the_left_is_not_seen() -> None:
    model = oracle("gemma3")
    long, short = ids(1, 15), ids(2, 4)
    with torch.no_grad():
        alone = model(torch.tensor([short])).logits[0, -1]
    torch.testing.assert_close(Answering(model, [long, short]).logits()[1], alone, atol=2e-4, rtol=1e-4)
