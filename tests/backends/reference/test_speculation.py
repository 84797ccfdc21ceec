"""Speculation in one process: the target's own answers, honest counts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.models import all_logits, engine_folder, greedy, oracle
from trtspec.analysis.acceptance import RoundHistogram
from trtspec.backends.reference import Request, Result, Sampling, Update, open_engine, open_pair
from trtspec.backends.reference.speculation import SpeculativePair
from trtspec.errors import ConfigError

pytestmark = pytest.mark.torch
PROMPTS = [tuple(int(i) for i in np.random.default_rng(s).integers(0, 61, 4 + 7 * s)) for s in range(7)]


def histogram(result: Result | Update) -> RoundHistogram:
    assert result.histogram is not None
    return RoundHistogram.from_wire(result.histogram)


@pytest.mark.parametrize("draft", ["draft", "near", "target"])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_greedy_tokens_are_the_targets_own(folders: dict[str, Path], target_model: Any, draft: str, k: int) -> None:
    with open_pair(folders["target"], folders[draft], draft_len=k) as pair:
        for ids in PROMPTS[:5]:
            result = pair.generate(Request("r", ids, 21))
            assert result.ids == greedy(target_model, ids, 21)
            counted = histogram(result)
            assert counted.emitted == 21
            assert (counted.accepted, counted.drafted) == (result.accepted, result.drafted)
        alpha = pair.histogram.alpha()
    assert alpha is not None
    assert {"draft": alpha < 0.5, "near": 0.2 < alpha < 1.0, "target": alpha == 1.0}[draft]


def test_bfloat16_changes_no_token_either(tmp_path: Path) -> None:
    target = engine_folder(tmp_path / "t", oracle(3, hidden_size=64, head_dim=16), "bfloat16")
    draft = engine_folder(tmp_path / "d", oracle(3, hidden_size=64, head_dim=16, num_hidden_layers=2), "bfloat16")
    with open_engine(target) as engine, open_pair(target, draft, draft_len=4) as pair:
        if engine.config.linear_kind != "mkldnn-prepacked":
            pytest.skip("known of oneDNN's packed linears only")
        for ids in PROMPTS:
            request = Request("r", ids, 60)
            assert pair.generate(request).ids == engine.generate(request).ids
        assert 0 < (pair.histogram.alpha() or 0) < 1


def test_all_streams_at_once_give_the_same(folders: dict[str, Path], target_model: Any) -> None:
    got: dict[str, list[int]] = {f"r{i}": [] for i in range(len(PROMPTS))}
    last: dict[str, Update] = {}
    done = threading.Semaphore(0)

    def taker(name: str) -> Any:
        def take(update: Update) -> None:
            got[name] += update.new_ids
            if update.finished:
                last[name] = update
                done.release()

        return take

    with open_pair(folders["target"], folders["near"], draft_len=4) as pair:
        for i, ids in enumerate(PROMPTS):
            pair.submit(Request(f"r{i}", ids, 10 + 2 * i), taker(f"r{i}"))
        for _ in PROMPTS:
            assert done.acquire(timeout=60)
        sizes, total = pair.stats().batch_sizes, pair.histogram
    for i, ids in enumerate(PROMPTS):
        assert tuple(got[f"r{i}"]) == greedy(target_model, ids, 10 + 2 * i)
    assert max(sizes) == 4
    merged = sum((histogram(update) for update in last.values()), RoundHistogram.empty(4))
    assert merged == total


def test_seeded_token_acceptance_equals_the_target_alone(folders: dict[str, Path]) -> None:
    sampling = Sampling(temperature=1.1, top_p=0.95, seed=7)
    with (
        open_engine(folders["target"]) as engine,
        open_pair(folders["target"], folders["near"], draft_len=4) as pair,
    ):
        for ids in PROMPTS[:4]:
            request = Request("r", ids, 24, sampling)
            assert pair.generate(request).ids == engine.generate(request).ids


def test_logits_acceptance_keeps_the_distribution_of_two_tokens(folders: dict[str, Path], target_model: Any) -> None:
    """Joint counts of the first two tokens, over seeds, against exact probabilities; top-k keeps the table small."""
    k, n = 3, 1500
    ids = PROMPTS[1]

    def exact(prefix: tuple[int, ...]) -> dict[int, float]:
        row = all_logits(target_model, prefix)[-1].astype(np.float64)
        best = np.argsort(-row)[:k]
        weights = np.exp(row[best] - row[best].max())
        return dict(zip(best.tolist(), weights / weights.sum(), strict=True))

    first = exact(ids)
    expected = {(a, b): pa * pb for a, pa in first.items() for b, pb in exact((*ids, a)).items()}
    expected = {pair: p for pair, p in expected.items() if p * n >= 5}
    counts = dict.fromkeys(expected, 0)
    rest = 0
    with open_pair(folders["target"], folders["near"], draft_len=2, acceptance="logits") as pair:
        for seed in range(n):
            made = pair.generate(Request("r", ids, 2, Sampling(top_k=k, seed=seed))).ids
            if made in counts:
                counts[made] += 1  # type: ignore[index]
            else:
                rest += 1
        assert 0 < (pair.histogram.alpha() or 0) < 1
    observed = [*counts.values(), rest]
    wanted = [*(p * n for p in expected.values())]
    wanted.append(n - sum(wanted))
    keep = [i for i, w in enumerate(wanted) if w >= 1]
    observed, wanted = [observed[i] for i in keep], [wanted[i] for i in keep]
    scale = sum(observed) / sum(wanted)
    assert stats.chisquare(observed, [w * scale for w in wanted]).pvalue > 1e-3


def test_logits_acceptance_accepts_a_perfect_draft_always(folders: dict[str, Path]) -> None:
    with open_pair(folders["target"], folders["target"], draft_len=4, acceptance="logits") as pair:
        pair.generate(Request("r", PROMPTS[2], 30, Sampling(seed=3)))
        assert pair.histogram.alpha() == 1.0


def test_an_end_drafted_and_accepted_cuts_the_round(folders: dict[str, Path], target_model: Any) -> None:
    answer = greedy(target_model, PROMPTS[4], 12)
    end = answer[6]
    with open_pair(folders["target"], folders["target"], draft_len=8) as pair:
        result = pair.generate(Request("r", PROMPTS[4], 12, end_ids=frozenset({end})))
    at = answer.index(end)
    assert (result.ids, result.finish_reason) == (answer[:at], "end_id")
    counted = histogram(result)
    assert counted.rejected == 0
    assert counted.accepted + counted.uncut.sum() == counted.emitted
    assert counted.alpha() == 1.0


def test_stop_words_cut_where_plain_decoding_stops(folders: dict[str, Path]) -> None:
    with (
        open_engine(folders["target"]) as engine,
        open_pair(folders["target"], folders["near"], draft_len=4) as pair,
    ):
        whole = engine.generate(Request("r", PROMPTS[3], 20)).ids
        request = Request("r", PROMPTS[3], 20, stop_words=(whole[8:10],))
        plain, fast = engine.generate(request), pair.generate(request)
    assert (plain.ids, plain.finish_reason) == (fast.ids, fast.finish_reason) == (plain.ids, "stop_words")


def test_rules_hold_in_draft_and_target(folders: dict[str, Path]) -> None:
    request = Request(
        "r", PROMPTS[2], 20, repetition_penalty=1.5, bad_words=((11,), (3, 4)), end_ids=frozenset({9}), min_tokens=15
    )
    with (
        open_engine(folders["target"]) as engine,
        open_pair(folders["target"], folders["near"], draft_len=4) as pair,
    ):
        assert pair.generate(request).ids == engine.generate(request).ids


def test_caches_are_kept_between_requests(folders: dict[str, Path], target_model: Any) -> None:
    with open_pair(folders["target"], folders["near"], draft_len=4) as pair:
        first = pair.generate(Request("a", PROMPTS[5], 8)).ids
        longer = (*PROMPTS[5], *first, 1, 2)
        assert pair.generate(Request("b", longer, 8)).ids == greedy(target_model, longer, 8)
        assert pair.stats().reused == len(PROMPTS[5]) + 7
        assert pair._draft.reused >= len(PROMPTS[5])


def test_prompts_of_several_chunks(tmp_path: Path) -> None:
    model = oracle(1, max_position_embeddings=1024)
    limits = {"max_input_len": 700, "max_seq_len": 720}
    target = engine_folder(tmp_path / "t", model, **limits)
    draft = engine_folder(tmp_path / "d", oracle(2, max_position_embeddings=1024), **limits)
    ids = tuple(int(i) for i in np.random.default_rng(8).integers(0, 61, 600))
    with open_pair(target, draft, draft_len=4) as pair:
        assert pair.generate(Request("r", ids, 6)).ids == greedy(model, ids, 6)


def test_draft_len_zero_is_plain_decoding(folders: dict[str, Path], target_model: Any) -> None:
    with open_pair(folders["target"], folders["draft"], draft_len=0) as pair:
        result = pair.generate(Request("r", PROMPTS[1], 6))
    assert result.ids == greedy(target_model, PROMPTS[1], 6)
    assert histogram(result).uncut.tolist() == [[6]]


def test_cancelling_frees_both_caches(folders: dict[str, Path]) -> None:
    with open_pair(folders["target"], folders["near"], draft_len=4) as pair:
        for _ in range(10):  # more than there are slots
            first, last = threading.Event(), threading.Event()
            ticket = pair.submit(
                Request("r", PROMPTS[1], 90),
                lambda update, first=first, last=last: (first.set(), last.set() if update.finished else None)[0],
            )
            assert first.wait(30)
            ticket.cancel()
            assert last.wait(30)
        assert pair.generate(Request("r", PROMPTS[1], 4)).finish_reason == "length"


def test_what_does_not_fit_together_is_refused(tmp_path: Path, folders: dict[str, Path]) -> None:
    other = engine_folder(tmp_path / "other", oracle(2, vocab_size=60))
    with pytest.raises(ConfigError, match="vocabulary differs"):
        open_pair(folders["target"], other, draft_len=4)
    with pytest.raises(ConfigError, match="expected 0 to 8"):
        open_pair(folders["target"], folders["draft"], draft_len=9)


def test_requests_it_cannot_serve_are_refused(folders: dict[str, Path]) -> None:
    with open_pair(folders["target"], folders["draft"], draft_len=2) as pair:
        assert isinstance(pair, SpeculativePair)
        with pytest.raises(ValueError, match="context_logits"):
            pair.submit(Request("r", (1, 2), 2, return_context_logits=True), lambda update: None)
        with pytest.raises(ValueError, match="max_draft_len 0"):
            pair.submit(Request("r", (1, 2), 2, draft_ids=(1,)), lambda update: None)
