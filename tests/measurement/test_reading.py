"""What is read off an answer against a loop that really speculates, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measurement.toyscorer import ToyScorer
from trtspec.analysis.simulation import Round, rounds
from trtspec.backends.reference.acceptance import accepts, residual
from trtspec.backends.reference.request import Sampling
from trtspec.backends.reference.sampling import ACCEPT, RESIDUAL, TOKEN, draw, probabilities, uniform
from trtspec.measurement.offline import OfflineAcceptance, measure
from trtspec.measurement.reading import ALONE, Rule, Setting, TokenPrompt

GREEDY, SAMPLED = Sampling(top_k=1), Sampling(temperature=0.9, top_k=6, top_p=0.95)


def speculate(
    target: ToyScorer, draft: ToyScorer, prompt: TokenPrompt, setting: Setting, k: int, rule: Rule
) -> tuple[list[int], list[Round]]:
    """Draft up to k tokens, judge them, keep what is accepted and one token of the target's own; until the end."""
    out: list[int] = []
    found: list[Round] = []
    while True:
        drafts = drafted(draft, prompt, setting, out, min(k, prompt.max_tokens - len(out) - 1), rule)
        for i, said in enumerate([*drafts, None]):
            own = judged(target, draft, (*prompt.ids, *out), said, setting.sampling, prompt.seed, rule)
            ends = own in setting.end_ids
            if not ends:
                out.append(own)
            if own != said or ends or len(out) == prompt.max_tokens:
                found.append(Round(len(drafts), i, cut=own == said))
                break
        if ends or len(out) == prompt.max_tokens:
            return out, found


def drafted(
    draft: ToyScorer, prompt: TokenPrompt, setting: Setting, out: Sequence[int], most: int, rule: Rule
) -> list[int]:
    drafts: list[int] = []
    while len(drafts) < most:
        purpose = ALONE if rule == "tokens-independent" else TOKEN
        token = draft.pick((*prompt.ids, *out, *drafts), setting.sampling, prompt.seed, purpose)
        if token in setting.silent:
            break
        drafts.append(token)
        if token in setting.end_ids:
            break
    return drafts


def judged(
    target: ToyScorer, draft: ToyScorer, ids: tuple[int, ...], said: int | None, how: Sampling, seed: int, rule: Rule
) -> int:
    if said is None or rule != "logits":
        return target.pick(ids, how, seed)
    p, q = probabilities(target.row(ids), how), probabilities(draft.row(ids), how)
    if accepts(p, q, said, uniform(seed, len(ids), ACCEPT)):
        return said
    return draw(residual(p, q), uniform(seed, len(ids), RESIDUAL))


def pair(likeness: float, case: int = 0) -> tuple[ToyScorer, ToyScorer]:
    return ToyScorer(f"t{case}", likeness), ToyScorer(f"d{case}", likeness)


@settings(max_examples=40)
@given(
    case=st.integers(0, 10**6),
    likeness=st.sampled_from([0.3, 0.7, 0.9, 1.0]),
    k=st.integers(1, 5),
    max_tokens=st.integers(1, 14),
    ends=st.sampled_from([(), (0,), (0, 1)]),
    silent=st.sampled_from(["first", "all", "none"]),
    sampling=st.sampled_from([GREEDY, SAMPLED]),
)
def test_token_acceptance_is_the_loop_round_by_round(
    case: int, likeness: float, k: int, max_tokens: int, ends: tuple[int, ...], silent: str, sampling: Sampling
) -> None:
    target, draft = pair(likeness, case)
    withheld = {"first": None, "all": frozenset(ends), "none": frozenset[int]()}[silent]
    setting = Setting(5, sampling, ends, withheld)
    prompt = TokenPrompt("p", "d", (2, 3), max_tokens, seed=case)
    found = measure(target, draft, [prompt], setting).readings[0]
    answer, looped = speculate(target, draft, prompt, setting, k, "tokens")
    assert found.tokens == len(answer)
    assert list(rounds(found.traces["tokens"], k)) == looped


@pytest.mark.parametrize("likeness", [0.5, 0.9])
def test_a_draft_with_numbers_of_its_own_is_the_loop_too(likeness: float) -> None:
    target, draft = pair(likeness)
    setting = Setting(4, SAMPLED, (0,))
    for seed in range(60):
        prompt = TokenPrompt("p", "d", (2, seed), 20, seed)
        found = measure(target, draft, [prompt], setting).readings[0]
        _, looped = speculate(target, draft, prompt, setting, 4, "tokens-independent")
        got = list(rounds(found.traces["tokens-independent"], 4))
        assert [(r.accepted, r.cut) for r in got] == [(r.accepted, r.cut) for r in looped]


def _many(setting: Setting, n: int = 500) -> tuple[OfflineAcceptance, list[list[Round]]]:
    target, draft = pair(0.8)
    prompts = [TokenPrompt(str(i), "d", (2, i % 7), 10, 1000 + i) for i in range(n)]
    found = measure(target, draft, prompts, setting)
    # Other seeds: the two are alike in distribution, not draw by draw.
    looped = [
        speculate(target, draft, TokenPrompt(p.id, "d", p.ids, 10, 10**6 + p.seed), setting, 3, "logits")[1]
        for p in prompts
    ]
    return found, looped


@pytest.mark.parametrize("ends", [(), (0,)], ids=["no end", "an end that is proposed"])
def test_the_rejection_rule_has_the_same_distribution(ends: tuple[int, ...]) -> None:
    found, looped = _many(Setting(3, SAMPLED, ends, frozenset()))
    ours = np.array(
        [[sum(r.accepted for r in rs), len(rs)] for rs in (list(rounds(x.traces["logits"], 3)) for x in found.readings)]
    )
    theirs = np.array([[sum(r.accepted for r in rs), len(rs)] for rs in looped])
    for column in (0, 1):
        a, b = ours[:, column], theirs[:, column]
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        assert abs(a.mean() - b.mean()) < 4 * error
    tested = sum(r.accepted + (r.accepted < r.drafted and not r.cut) for rs in looped for r in rs)
    alpha = found.alpha(3, "logits")
    expected = found.expected_alpha(3, "logits")
    assert alpha is not None
    assert expected is not None
    assert alpha.low < expected < alpha.high
    assert abs(theirs[:, 0].sum() / tested - expected) < 0.03


def test_rules_are_ordered_as_theory_says() -> None:
    """Accepting by the rejection rule beats equal tokens drawn apart: min(p, q) is at least p · q, summed."""
    target, draft = pair(0.8)
    prompts = [TokenPrompt(str(i), "d", (2, i), 12, i) for i in range(80)]
    found = measure(target, draft, prompts, Setting(4, SAMPLED, (0,)))
    alone, logits = (found.expected_alpha(4, rule) for rule in ("tokens-independent", "logits"))
    assert alone is not None
    assert logits is not None
    assert alone < logits
    assert found.expected_alpha(4, "tokens") is None  # draws nothing once the request's numbers are given


def test_greedy_has_one_rule() -> None:
    target, draft = pair(0.8)
    found = measure(target, draft, [TokenPrompt("p", "d", (2,), 9)], Setting(4, GREEDY, (0,)))
    assert set(found.readings[0].traces) == {"tokens"}


def test_a_draft_of_fewer_tokens_is_asked_as_far_as_it_can_read() -> None:
    target, draft = ToyScorer("t", 0.5), ToyScorer("d", 0.5, vocab=6)
    prompts = [TokenPrompt(str(i), "d", (2, i), 12, i) for i in range(20)]
    answers = target.generate([p.ids for p in prompts], 12)
    found = measure(target, draft, prompts, Setting(4, GREEDY))
    for answer, reading in zip(answers, found.readings, strict=True):
        strange = next((i for i, token in enumerate(answer) if token >= 6), 11)
        assert reading.tokens == strange + 1
        if answer[strange] >= 6:
            assert reading.traces["tokens"].outcomes[-1] == "-"
    assert any(r.tokens < 12 for r in found.readings)


def test_readings_that_are_known_are_not_made_again() -> None:
    target, draft = pair(0.8)
    prompts = [TokenPrompt(str(i), "d", (2, i), 6) for i in range(10)]
    first = measure(target, draft, prompts[:4], Setting(4))
    target.asked = 0
    kept: list[str] = []
    known = {(r.domain, r.id): r for r in first.readings}
    seen: list[tuple[int, int]] = []
    again = measure(
        target, draft, prompts, Setting(4), known=known, keep=lambda new: kept.extend(r.id for r in new),
        progress=lambda done, total: seen.append((done, total)), chunk=4,
    )  # fmt: skip
    assert target.asked == 6
    assert kept == ["4", "5", "6", "7", "8", "9"]
    assert seen == [(8, 10), (10, 10)]
    assert again == measure(target, draft, prompts, Setting(4))


def test_figures_of_a_domain_are_of_its_prompts_alone() -> None:
    target, draft = pair(0.8)
    prompts = [TokenPrompt(str(i), "ab"[i % 2], (2, i), 8) for i in range(12)]
    found = measure(target, draft, prompts, Setting(4))
    assert found.domains == ("a", "b")
    parts = [found.histogram(4, domain=d) for d in found.domains]
    assert parts[0] + parts[1] == found.histogram(4)
    one = found.alpha(4, domain="a")
    assert one is not None
    assert one.n == 6
    assert one.point == parts[0].alpha()
