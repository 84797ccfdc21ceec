"""What a step's logits add to a request, on hand-made logits: no model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from trtspec.backends.reference.request import Request, Sampling
from trtspec.backends.reference.sampling import probabilities
from trtspec.backends.reference.sequence import Running, Step

VOCAB = 6
BASE = Request("r", (5, 5), 8)


def rows(*tokens: int) -> np.ndarray:
    """Logits whose best tokens these are."""
    out = np.zeros((len(tokens), VOCAB), np.float32)
    out[np.arange(len(tokens)), tokens] = 9.0
    return out


def absorb(running: Running, logits: np.ndarray) -> Step:
    return running.absorb(logits, logits.argmax(1).tolist())


def verify(drafts: tuple[int, ...], targets: tuple[int, ...], **changes: Any) -> tuple[Running, Step]:
    running = Running(replace(BASE, draft_ids=drafts, **changes), lambda update: None, VOCAB)
    return running, absorb(running, rows(*targets))


@pytest.mark.parametrize(
    ("targets", "ids", "accepted"),
    [
        ((1, 2, 3, 4), [1, 2, 3, 4], 3),  # all agree: three drafts and the target's own
        ((1, 2, 0, 4), [1, 2, 0], 2),  # third differs
        ((0, 2, 3, 4), [0], 0),  # first differs: what stands behind is never looked at
    ],
)
def test_token_acceptance(targets: tuple[int, ...], ids: list[int], accepted: int) -> None:
    running, step = verify((1, 2, 3), targets)
    assert (step.ids, step.accepted, step.drafted, step.cut) == (ids, accepted, 3, False)
    assert running.ids == [5, 5, *ids]
    assert running.cached == 2 + accepted, "the target's own token is not in the cache yet"
    assert (running.accepted, running.drafted) == (accepted, 3)


def test_an_end_id_among_the_accepted_cuts_the_round() -> None:
    running, step = verify((1, 4, 3), (1, 4, 3, 2), end_ids=frozenset({4}))
    assert (step.ids, step.accepted, step.cut) == ([1], 1, True)
    assert (running.finish, running.ids, running.cached) == ("end_id", [5, 5, 1], 3)


def test_an_end_id_as_the_targets_own_token_ends_an_uncut_round() -> None:
    running, step = verify((1, 2), (1, 4, 3), end_ids=frozenset({4}))
    assert (step.ids, step.accepted, step.cut) == ([1], 1, False)
    assert running.finish == "end_id"


def test_a_stop_sequence_among_the_accepted_cuts_the_round() -> None:
    running, step = verify((1, 2, 3), (1, 2, 3, 0), stop_words=((1, 2),))
    assert (step.ids, step.accepted, step.cut) == ([1, 2], 2, True)
    assert running.finish == "stop_words"


def test_a_stop_sequence_may_begin_in_the_input() -> None:
    running, step = verify((), (1,), stop_words=((5, 1),))
    assert (step.ids, running.finish) == ([1], "stop_words")


def test_the_token_limit_among_the_accepted_cuts_the_round() -> None:
    running, step = verify((1, 2, 3), (1, 2, 3, 0), max_new_tokens=2)
    assert (step.ids, step.accepted, step.cut) == ([1, 2], 2, True)
    assert running.finish == "length"


def test_the_token_limit_at_the_targets_own_token_does_not() -> None:
    running, step = verify((1, 2), (1, 0, 3), max_new_tokens=2)
    assert (step.ids, step.accepted, step.cut, running.finish) == ([1, 0], 1, False, "length")


def test_min_tokens_takes_the_second_best() -> None:
    logits = rows(4, 4)
    logits[:, 2] = 5.0
    running = Running(replace(BASE, draft_ids=(2,), end_ids=frozenset({4}), min_tokens=1), lambda update: None, VOCAB)
    step = absorb(running, logits)
    assert (step.ids, step.accepted, running.finish) == ([2], 1, "end_id")


def test_updates_carry_the_rows_of_their_tokens() -> None:
    running = Running(
        replace(BASE, draft_ids=(1, 2), return_generation_logits=True, return_log_probs=True),
        lambda update: None,
        VOCAB,
    )
    logits = rows(1, 0, 3)
    update = running.update(absorb(running, logits), logits)
    assert update.new_ids == (1, 0)
    assert update.logits is not None
    np.testing.assert_array_equal(update.logits, logits[:2])
    assert update.log_probs is not None
    expected = np.log(probabilities(logits[0], Sampling())[1])
    np.testing.assert_allclose(update.log_probs, [expected, expected], rtol=1e-5)


def test_seeded_verification_gives_the_tokens_of_seeded_decoding() -> None:
    """Whatever the drafts, as long as the logits at each position are those of the emitted prefix."""
    logits = np.random.default_rng(0).normal(size=(8, VOCAB)).astype(np.float32) * 2
    request = replace(BASE, sampling=Sampling(temperature=1.3, top_p=0.9, seed=17))
    plain = Running(request, lambda update: None, VOCAB)
    for i in range(8):
        absorb(plain, logits[i : i + 1])
    answer = plain.ids[2:]
    for wrong_at in range(5):
        drafts = [*answer[:wrong_at], (answer[wrong_at] + 1) % VOCAB, *answer[wrong_at + 1 : 4]]
        running = Running(replace(request, draft_ids=tuple(drafts[:4])), lambda update: None, VOCAB)
        step = absorb(running, logits[:5])
        assert step.ids == answer[: min(wrong_at, 4) + 1]
        assert step.accepted == min(wrong_at, 4)


DRAWN = Sampling()


def joint_counts(threshold: float | None, n: int, sampling: Sampling = DRAWN) -> tuple[np.ndarray, np.ndarray]:
    """Two positions with drafts drawn from other distributions; counts of the pair, and its exact distribution."""
    rng = np.random.default_rng(1)
    target, draft = rng.normal(size=(2, 3, 3)).astype(np.float32)
    q = [probabilities(row, Sampling()) for row in draft]
    p = [probabilities(row, sampling) for row in target]
    counts = np.zeros((3, 3))
    for seed in range(n):
        proposed = (int(rng.choice(3, p=q[0])), int(rng.choice(3, p=q[1])))
        request = Request(
            "r",
            (0,),
            2,
            sampling=replace(sampling, seed=seed),
            draft_ids=proposed,
            draft_logits=draft[:2],
            acceptance_threshold=threshold,
        )
        running = Running(request, lambda update: None, 3)
        absorb(running, target)
        while len(running.ids) < 3:  # rejected at once: the next call goes on with the target alone
            absorb(running, target[1:2])
        counts[running.ids[1], running.ids[2]] += 1
    return counts, np.outer(p[0], p[1])


def test_the_rejection_rule_keeps_the_joint_distribution() -> None:
    counts, exact = joint_counts(None, 20000)
    assert stats.chisquare(counts.ravel(), exact.ravel() * counts.sum()).pvalue > 1e-3


def test_draft_logits_stand_for_what_was_drawn_from_whatever_the_targets_sampling() -> None:
    counts, exact = joint_counts(None, 20000, Sampling(temperature=0.6, top_k=2))
    likely = exact.ravel() > 0
    assert counts.ravel()[~likely].sum() == 0
    assert stats.chisquare(counts.ravel()[likely], exact.ravel()[likely] * counts.sum()).pvalue > 1e-3


def test_a_fixed_threshold_is_another_rule() -> None:
    """It is allowed to be inexact; were it not, it would not be doing anything."""
    counts, exact = joint_counts(0.2, 5000)
    assert stats.chisquare(counts.ravel(), exact.ravel() * counts.sum()).pvalue < 1e-6


def test_greedy_with_draft_logits_is_token_acceptance() -> None:
    running, step = verify((1, 2), (1, 0, 3), draft_logits=rows(1, 2))
    assert (step.ids, step.accepted) == ([1, 0], 1)
    assert running.ids == [5, 5, 1, 0]
