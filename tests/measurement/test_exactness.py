"""Greedy differences: found at their token, and told apart by the target's own logits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tests.measurement.fake import END, FakeClient, prompts, toy_logits, validation
from trtspec.errors import ServingError
from trtspec.measurement.exactness import Comparison, Difference, compare, diagnose
from trtspec.measurement.load import measure
from trtspec.measurement.prompts import Prompt
from trtspec.triton.generation import Array, GenerateRequest, Generation

NEAR = 0.1


def tied_logits(ids: tuple[int, ...]) -> Array:
    """As the toy model, with a second best only 0.04 behind."""
    logits = toy_logits(ids)
    runner_up = (int(logits.argmax()) + 1) % END
    logits[runner_up] = logits.max() - 0.04
    return logits


def compared(client: FakeClient, count: int = 8) -> Comparison:
    asked = prompts(count)
    samples = measure(lambda: client, asked, validation(), 4)
    found = compare(client, asked, samples, temperature=0.0, near_tie=NEAR)
    assert found is not None
    return found["code"]


def long_answers(client: FakeClient) -> list[Prompt]:
    """Prompts whose answers have at least four tokens, so that a fork at the third is inside."""
    return [p for p in prompts(8) if len(client.token_ids(client.tokens(p.text), p.max_tokens)) >= 4]


def test_equal_answers_ask_the_server_nothing_more() -> None:
    client = FakeClient()
    found = compared(client)
    assert (found.compared, found.equal, found.differences) == (8, 8, ())


def test_sampled_answers_are_not_compared() -> None:
    asked = prompts(2)
    client = FakeClient()
    samples = measure(lambda: client, asked, validation(temperature=1.0), 4)
    assert compare(client, asked, samples, temperature=1.0, near_tie=NEAR) is None


@pytest.mark.parametrize(("logits", "kind"), [(tied_logits, "near-tie"), (toy_logits, "real")])
def test_a_difference_is_judged_by_the_logits_at_its_token(logits: object, kind: str) -> None:
    client = FakeClient(logits=logits)  # type: ignore[arg-type]
    chosen = long_answers(client)[0]
    client.forks = {chosen.text: 2}
    found = compared(client)
    (difference,) = found.differences
    assert (found.compared, found.equal) == (8, 7)
    assert (difference.prompt_id, difference.kind, difference.token) == (chosen.id, kind, 2)
    start = client.tokens(chosen.text)
    at = logits(start + client.token_ids(start, 2))  # type: ignore[operator]
    best, second = np.sort(at)[::-1][:2]
    assert difference.gap == pytest.approx(float(best - second))
    assert len(difference.before) == 2
    assert difference.target_only[0] != difference.speculative[0]


def test_a_token_far_from_the_best_is_a_real_difference_without_a_gap() -> None:
    client = FakeClient()
    asked = long_answers(client)[0]
    text = client.decode(client.token_ids(client.tokens(asked.text), asked.max_tokens))
    worst = int(np.argmin(toy_logits(client.tokens(asked.text))))
    difference = diagnose(client, asked, text, client.decode((worst,)) + "x", NEAR)
    assert (difference.kind, difference.token, difference.gap) == ("real", 0, None)
    assert "likeliest" in difference.reason


def test_an_unusable_answer_is_not_compared() -> None:
    def lie(model: str, request: GenerateRequest, answer: Generation) -> Generation:
        if "import" in request.prompt:
            raise ServingError("broken")
        return answer

    assert compared(FakeClient(lie=lie), 10).compared == 8


def test_a_server_that_cannot_explain_leaves_it_undiagnosed() -> None:
    class Mute(FakeClient):
        def next_logits(self, input_ids: tuple[int, ...]) -> Array:
            raise ServingError("the answer lacks generation_logits")

    client = Mute()
    client.forks = {long_answers(client)[0].text: 1}
    (difference,) = compared(client).differences
    assert (difference.kind, difference.token, difference.gap) == ("undiagnosed", None, None)
    assert "generation_logits" in difference.reason


# Tokens of several characters, and of half a character.
VOCAB = (b"", b"x", b" ba", b"r", b" baz", b" b", b"\xc3", b"\xa9", b"!", b"y")
EOS, X, BA, R, BAZ, B, HALF, REST, MARK, Y = range(10)


@dataclass
class Scripted(FakeClient):
    """Logits by the answer so far; -9 where nothing is said, and the end token where nothing is known."""

    says: dict[tuple[int, ...], dict[int, float]] = field(default_factory=dict)

    def tokens(self, prompt: str) -> tuple[int, ...]:
        return (X,)

    def decode(self, ids: tuple[int, ...]) -> str:
        return b"".join(VOCAB[i] for i in ids).decode("utf-8", "replace")

    def next_logits(self, input_ids: tuple[int, ...]) -> Array:
        logits = np.full(len(VOCAB), -9.0, np.float32) - np.arange(len(VOCAB), dtype=np.float32)
        for token, value in self.says.get(input_ids[1:], {EOS: 0.0}).items():
            logits[token] = value
        return logits

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        new: tuple[int, ...] = ()
        while len(new) < max_tokens and (token := int(self.next_logits(prompt_ids + new).argmax())) != EOS:
            new = (*new, token)
        return new


def scripted(
    says: dict[tuple[int, ...], dict[int, float]], target_only: str, speculative: str, tokens: int = 8
) -> Difference:
    prompt = Prompt("p", "code", "x", tokens)
    return diagnose(Scripted(says=says), prompt, target_only, speculative, NEAR)


def test_tokens_that_begin_alike_part_where_they_were_chosen() -> None:
    """The target says " ba" "r", speculation " baz": they part at the first token, not at the second."""
    says = {(): {BA: 5.0, BAZ: 4.95}, (BA,): {R: 5.0}}
    found = scripted(says, " bar", " baz")
    assert (found.kind, found.token) == ("near-tie", 0)
    assert found.gap == pytest.approx(0.05, abs=1e-5)
    mirrored = scripted({(): {BAZ: 5.0, BA: 4.95}, (BA,): {R: 5.0}}, " baz", " bar")
    assert (mirrored.kind, mirrored.token) == ("near-tie", 0)


def test_a_wide_gap_between_tokens_that_begin_alike_is_real() -> None:
    found = scripted({(): {BA: 5.0, BAZ: 3.0}, (BA,): {R: 5.0}}, " bar", " baz")
    assert (found.kind, found.token) == ("real", 0)
    assert found.gap == pytest.approx(2.0)


def test_an_early_end_is_the_end_tokens_difference() -> None:
    says = {(): {BA: 5.0}, (BA,): {R: 5.0, EOS: 4.97}}
    assert scripted(says, " bar", " ba").kind == "near-tie"
    assert scripted(says, " bar", "").kind == "real"


def test_a_late_end_is_the_end_tokens_difference_too() -> None:
    says = {(): {BA: 5.0}, (BA,): {EOS: 5.0, R: 4.0}}
    found = scripted(says, " ba", " bar")
    assert (found.kind, found.token) == ("real", 1)
    assert found.gap == pytest.approx(1.0)


def test_text_after_max_tokens_is_never_a_near_tie() -> None:
    says = {(): {BA: 5.0}, (BA,): {R: 5.0}}
    found = scripted(says, " ba", " bar", tokens=1)
    assert (found.kind, found.gap) == ("real", None)
    assert "max_tokens" in found.reason


def test_half_a_character_is_no_difference() -> None:
    says = {(): {HALF: 5.0}, (HALF,): {REST: 5.0}, (HALF, REST): {MARK: 5.0, R: 4.96}}
    found = scripted(says, "é!", "ér")
    assert (found.kind, found.token) == ("near-tie", 2)


def test_a_rerun_that_follows_speculation_is_judged_from_there() -> None:
    """Batched, the target alone took the other side of a tie; alone it takes that of speculation."""
    says = {(): {Y: 5.0}, (Y,): {R: 5.0, MARK: 4.95}}
    found = scripted(says, "y!", "yr")
    assert (found.kind, found.token) == ("near-tie", 1)


def test_a_rerun_that_takes_another_turn_is_led_back() -> None:
    """Both texts begin with y where the rerun says r, by a hair; they part one token later."""
    says = {(): {R: 5.0, Y: 4.98}, (Y,): {MARK: 5.0, B: 4.93}}
    found = scripted(says, "y!", "y b")
    assert (found.kind, found.token) == ("near-tie", 1)
    assert found.gap == pytest.approx(0.07, abs=1e-5)


def test_a_rerun_that_follows_neither_text_is_real() -> None:
    found = scripted({(): {R: 5.0, Y: 1.0}}, "y!", "y b")
    assert (found.kind, found.gap) == ("real", None)
    assert "neither" in found.reason


def test_context_is_short() -> None:
    prompt = Prompt("p", "code", "x", 8)
    found = diagnose(Scripted(says={}), prompt, "a" * 500 + "b" * 500, "a" * 500 + "c" * 500, NEAR)
    assert (len(found.before), found.target_only, found.speculative) == (60, "b" * 60, "c" * 60)


def test_counts_by_kind() -> None:
    one = Difference("p", "real", "", "", "")
    found = Comparison(3, 1, (one, replace(one, kind="near-tie")))
    assert (found.count("real"), found.count("near-tie"), found.count("undiagnosed")) == (1, 1, 0)
