"""Cross-checks: do the counters agree with each other and with the tokens, and did speculation run at all?

A measurement that contradicts itself proves nothing. Each problem names its first example and how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trtspec.measurement.records import Answer, Samples, total

MAX_UNUSABLE = 0.01
"""Share of a domain's requests that may fail before its figures count as cherry-picked."""


@dataclass(frozen=True)
class Problem:
    """Why a domain's evidence cannot be trusted. `code` is stable; `count` is how many answers show it."""

    code: str
    domain: str
    message: str
    count: int = 1


def audit(domain: str, samples: Samples, *, greedy: bool) -> list[Problem]:
    """Every kind of problem of one domain, once each."""
    spec = samples.of(domain, "speculative")
    every = [*samples.of(domain, "target-only"), *spec]
    found: dict[str, Problem] = {}
    for answer in every:
        if answer.usable:
            for code, message in _faults(answer):
                count = found[code].count + 1 if code in found else 1
                first = found[code].message if code in found else f"prompt {answer.prompt.id}: {message}"
                found[code] = Problem(code, domain, first, count)
    return [
        *found.values(),
        *_unusable(domain, every),
        *(_token_counts(domain, samples) if greedy else ()),
        *_silent_death(domain, [a for a in spec if a.usable]),
    ]


def _faults(answer: Answer) -> Iterator[tuple[str, str]]:
    """What one answer contradicts in itself."""
    if answer.output_tokens > answer.prompt.max_tokens:
        yield "tokens.too-many", f"{answer.output_tokens} tokens where max_tokens is {answer.prompt.max_tokens}"
    if answer.text and answer.output_tokens == 0:
        yield "tokens.none-for-text", "a text came back, and a count of 0 output tokens"
    if answer.mode == "target-only":
        return
    if answer.spec_mode != "speculative":
        yield "speculation.not-running", f"the server reports the mode {answer.spec_mode or 'nothing'!r}"
    elif answer.histogram is None:
        yield "counters.missing", "the server sent no histogram of rounds: acceptance was not measured"
    else:
        yield from _counters(answer)


def _counters(answer: Answer) -> Iterator[tuple[str, str]]:
    """The histogram against the totals on the wire and against the tokens of the answer."""
    counted = answer.histogram
    if counted is None:
        return
    for name in ("rounds", "drafted", "tested", "accepted"):
        ours, theirs = getattr(counted, name), getattr(answer, name)
        if ours != theirs:
            yield "counters.disagree", f"the histogram holds {ours} {name}, the total says {theirs}"
            return
    # The end token is emitted by a round, and is no output token.
    if counted.emitted - answer.output_tokens not in (0, 1):
        yield (
            "counters.tokens",
            f"its rounds emitted {counted.emitted} tokens, the answer has {answer.output_tokens} output tokens",
        )


def _unusable(domain: str, answers: list[Answer]) -> Iterator[Problem]:
    failed = [a for a in answers if not a.usable]
    if not answers:
        yield Problem("answers.none", domain, "nothing was measured", 0)
    elif len(failed) > MAX_UNUSABLE * len(answers):
        first = f"{len(failed)} of {len(answers)} requests failed, first {failed[0].mode} {failed[0].prompt.id}"
        yield Problem("answers.unusable", domain, f"{first}: {failed[0].fault}", len(failed))


def _token_counts(domain: str, samples: Samples) -> Iterator[Problem]:
    """Equal greedy texts have equal token counts; one lone pair may be a near-tie of two spellings of a text."""
    pairs = samples.pairs(domain)
    odd = [(a, b) for a, b in pairs if a.text == b.text and a.output_tokens != b.output_tokens]
    if len(odd) > max(1.0, MAX_UNUSABLE * len(pairs)):
        a, b = odd[0]
        counts = f"{a.output_tokens} tokens target-only and {b.output_tokens} speculative"
        yield Problem("tokens.differ", domain, f"prompt {a.prompt.id}: one text, counted as {counts}", len(odd))


def _silent_death(domain: str, answers: list[Answer]) -> Iterator[Problem]:
    """A draft that is never asked, or never right, leaves every text correct: only the counters show it."""
    counted = total(a.histogram for a in answers)
    if counted is None:
        return
    if counted.drafted == 0:
        yield Problem("speculation.never-drafted", domain, f"{counted.rounds} rounds, and none drafted a token")
    elif counted.accepted == 0:
        yield Problem("speculation.never-accepted", domain, f"none of {counted.drafted} drafted tokens was accepted")
