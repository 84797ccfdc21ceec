"""The engine as its callers see it: answers, batching, reuse, verify steps, limits."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.models import all_logits, engine_folder, greedy, oracle
from trtspec.backends.reference import Request, Result, Sampling, Update, open_engine
from trtspec.backends.reference.engine import ReferenceEngine

pytestmark = pytest.mark.torch
PROMPTS = [tuple(int(i) for i in np.random.default_rng(s).integers(0, 61, 5 + 9 * s)) for s in range(7)]
SAMPLED = Sampling(temperature=1.2, top_k=20, top_p=0.95, seed=42)


def together(engine: ReferenceEngine, requests: list[Request]) -> list[tuple[int, ...]]:
    """Submit all at once; each one's ids."""
    got: list[list[int]] = [[] for _ in requests]
    done = threading.Semaphore(0)

    def taker(i: int) -> Any:
        def take(update: Update) -> None:
            got[i] += update.new_ids
            if update.finished:
                assert update.error is None
                done.release()

        return take

    for i, request in enumerate(requests):
        engine.submit(request, taker(i))
    for _ in requests:
        assert done.acquire(timeout=60)
    return [tuple(ids) for ids in got]


def test_greedy_answers_are_the_oracles(engine: ReferenceEngine, target_model: Any) -> None:
    for ids in PROMPTS[:4]:
        result = engine.generate(Request("r", ids, 12))
        assert result.ids == greedy(target_model, ids, 12)
        assert result.finish_reason == "length"


@pytest.mark.parametrize("sampling", [Sampling(top_k=1), SAMPLED], ids=["greedy", "seeded"])
def test_batched_equals_one_by_one(folders: dict[str, Path], sampling: Sampling) -> None:
    """More requests than slots, of different lengths, so that they join and leave all the time."""
    requests = [Request(f"r{i}", ids, 6 + 3 * i, sampling) for i, ids in enumerate(PROMPTS)]
    with open_engine(folders["target"]) as engine:
        alone = []
        for request in requests:
            engine.forget()
            alone.append(engine.generate(request).ids)
        engine.forget()
        assert together(engine, requests) == alone
        sizes = engine.stats().batch_sizes
    assert max(sizes) == 4, "the batch filled up to max_batch_size and no further"


def test_reused_equals_fresh(engine: ReferenceEngine) -> None:
    ids = PROMPTS[6]
    fresh = engine.generate(Request("a", ids, 10, return_generation_logits=True))
    assert engine.stats().reused == 0
    again = engine.generate(Request("b", ids, 10, return_generation_logits=True))
    assert engine.stats().reused == len(ids) - 1
    assert again.ids == fresh.ids
    assert again.logits is not None
    assert fresh.logits is not None
    np.testing.assert_allclose(again.logits, fresh.logits, atol=1e-4)


def test_a_continued_conversation_computes_only_what_is_new(engine: ReferenceEngine, target_model: Any) -> None:
    ids = PROMPTS[5]
    first = engine.generate(Request("a", ids, 6)).ids
    longer = (*ids, *first, 7, 8, 9)
    result = engine.generate(Request("b", longer, 6))
    assert result.ids == greedy(target_model, longer, 6)
    stats = engine.stats()
    assert stats.prefilled == len(ids) + 4, "the last generated token and the three given ones"
    assert stats.reused == len(ids) + 5


def test_a_shared_system_prompt_is_copied_between_slots(engine: ReferenceEngine, target_model: Any) -> None:
    for tail in (1, 2, 3):
        ids = (*PROMPTS[6], tail)
        assert engine.generate(Request("r", ids, 4)).ids == greedy(target_model, ids, 4)
    assert engine.stats().reused == 2 * len(PROMPTS[6])


@pytest.mark.parametrize("sampling", [Sampling(top_k=1), SAMPLED], ids=["greedy", "seeded"])
def test_verify_equals_step_by_step(engine: ReferenceEngine, sampling: Sampling) -> None:
    ids = PROMPTS[3]
    answer = engine.generate(Request("plain", ids, 9, sampling)).ids
    for agree in range(5):
        drafts = (*answer[:agree], *((token + 1) % 61 for token in answer[agree:4]))
        result = engine.generate(Request("v", ids, 5, sampling, draft_ids=drafts))
        assert result.ids == answer[: agree + 1]
        assert (result.accepted, result.drafted, result.finish_reason) == (agree, 4, "length")


def test_a_stateless_loop_of_verify_calls_gives_the_same_answer(engine: ReferenceEngine, target_model: Any) -> None:
    """What the BLS does: every round sends the whole sequence; drafts are partly wrong."""
    ids = PROMPTS[2]
    answer = greedy(target_model, ids, 20)
    made: tuple[int, ...] = ()
    while len(made) < 20:
        right = answer[len(made) :]
        drafts = (*right[:2], 0, 0)[: max(0, min(4, 20 - len(made) - 1))]
        result = engine.generate(Request("v", ids + made, len(drafts) + 1, draft_ids=drafts))
        made += result.ids
    assert made == answer
    assert engine.stats().prefilled < len(ids) + 2 * 20, "each round computes its new tokens, not the sequence"


def test_one_token_calls_with_a_seed_equal_one_long_call(engine: ReferenceEngine) -> None:
    ids = PROMPTS[1]
    whole = engine.generate(Request("long", ids, 8, SAMPLED)).ids
    made: tuple[int, ...] = ()
    for _ in range(8):
        made += engine.generate(Request("one", ids + made, 1, SAMPLED)).ids
    assert made == whole


def test_seeds_decide(engine: ReferenceEngine) -> None:
    def answer(seed: int | None) -> tuple[int, ...]:
        return engine.generate(Request("r", PROMPTS[1], 12, Sampling(temperature=1.5, seed=seed))).ids

    assert answer(1) == answer(1)
    assert answer(1) != answer(2)
    assert len({answer(None) for _ in range(4)}) > 1


def test_penalties_and_bad_words_hold_over_separate_calls(engine: ReferenceEngine) -> None:
    base = Request("r", PROMPTS[1], 10, repetition_penalty=1.7, frequency_penalty=0.3, bad_words=((3,), (5, 9)))
    whole = engine.generate(base).ids
    assert 3 not in whole
    made: tuple[int, ...] = ()
    for _ in range(10):
        made += engine.generate(replace(base, input_ids=base.input_ids + made, max_new_tokens=1)).ids
    assert made == whole
    assert whole != engine.generate(Request("r", PROMPTS[1], 10)).ids


def test_end_ids_and_min_tokens(engine: ReferenceEngine, target_model: Any) -> None:
    answer = greedy(target_model, PROMPTS[4], 10)
    end = answer[5]
    at = answer.index(end)
    result = engine.generate(Request("r", PROMPTS[4], 10, end_ids=frozenset({end, 60 if end != 60 else 59})))
    assert (result.ids, result.finish_reason) == (answer[:at], "end_id")
    held = engine.generate(Request("r", PROMPTS[4], 10, end_ids=frozenset({end}), min_tokens=at + 2))
    assert held.ids[:at] == answer[:at]
    assert end not in held.ids
    assert len(held.ids) >= at + 2


def test_stop_words(engine: ReferenceEngine, target_model: Any) -> None:
    answer = greedy(target_model, PROMPTS[4], 10)
    result = engine.generate(Request("r", PROMPTS[4], 10, stop_words=((60, 60, 60), answer[3:5])))
    assert result.finish_reason == "stop_words"
    assert result.ids == answer[:5]


def test_logits_and_log_probs(engine: ReferenceEngine, target_model: Any) -> None:
    ids = PROMPTS[4]
    result = engine.generate(
        Request("r", ids, 5, return_generation_logits=True, return_context_logits=True, return_log_probs=True)
    )
    exact = all_logits(target_model, ids + result.ids)
    assert result.context_logits is not None
    assert result.logits is not None
    assert result.log_probs is not None
    np.testing.assert_allclose(result.context_logits, exact[: len(ids)], atol=1e-4)
    np.testing.assert_allclose(result.logits, exact[len(ids) - 1 : -1], atol=1e-4)
    best = exact[len(ids) - 1 : -1]
    expected = best.max(1) - np.log(np.exp(best - best.max(1, keepdims=True)).sum(1)) - best.max(1)
    np.testing.assert_allclose(result.log_probs, expected, atol=1e-4)


def test_context_logits_are_complete_after_a_reusable_request_and_over_chunks(
    tmp_path: Path, target_model: Any
) -> None:
    ids = tuple(int(i) for i in np.random.default_rng(9).integers(0, 61, 300))
    folder = engine_folder(tmp_path / "e", oracle(1, max_position_embeddings=512), max_input_len=400, max_seq_len=410)
    with open_engine(folder) as engine:
        engine.generate(Request("a", ids, 2))
        result = engine.generate(Request("b", ids, 2, return_context_logits=True))
    assert result.context_logits is not None
    np.testing.assert_allclose(result.context_logits, all_logits(target_model, ids), atol=1e-4)


def test_long_prompts_do_not_stop_running_neighbours(tmp_path: Path) -> None:
    """A prompt of several chunks is spread over steps in which the others go on."""
    folder = engine_folder(tmp_path / "e", oracle(1, max_position_embeddings=1024), max_input_len=900, max_seq_len=1000)
    order: list[str] = []
    done = threading.Semaphore(0)

    def taker(name: str) -> Any:
        def take(update: Update) -> None:
            order.append(name)
            if update.finished:
                done.release()

        return take

    with open_engine(folder) as engine:
        started = threading.Event()
        engine.submit(Request("short", (1, 2, 3), 60), lambda update: (taker("short")(update), started.set())[0])
        assert started.wait(30)
        engine.submit(Request("long", tuple(range(60)) * 14, 3), taker("long"))
        assert done.acquire(timeout=60)
        assert done.acquire(timeout=60)
    assert "short" in order[: order.index("long")]
    assert order.index("long") < len(order) - 3


def test_reported_settings(folders: dict[str, Path]) -> None:
    with open_engine(folders["target"], threads=1, linear="torch-linear") as engine:
        assert (engine.config.linear_kind, engine.config.threads) == ("torch-linear", 1)
        assert (engine.config.vocab_size, engine.config.compute_dtype) == (61, "float32")


def test_bad_requests_are_refused_at_once(engine: ReferenceEngine) -> None:
    with pytest.raises(ValueError, match="max_input_len 119"):
        engine.submit(Request("r", (1,) * 200, 1), lambda update: None)
    assert engine.stats().waiting == 0


def test_results_are_sums_of_updates(engine: ReferenceEngine) -> None:
    updates: list[Update] = []
    done = threading.Event()

    def take(update: Update) -> None:
        updates.append(update)
        if update.finished:
            done.set()

    engine.submit(Request("r", PROMPTS[0], 5), take)
    assert done.wait(30)
    assert [len(update.new_ids) for update in updates] == [1] * 5
    assert [update.finished for update in updates] == [False] * 4 + [True]
    assert isinstance(engine.generate(Request("r", PROMPTS[0], 5)), Result)
