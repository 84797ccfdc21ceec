"""Cross-checks: do the counters agree with each other and with the tokens, and did speculation run at all?

A measurement that contradicts itself proves nothing. Each problem names its first example and how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from trtspec.measurement.parts import Severity
from trtspec.measurement.records import MODES, Answer, Mode, Samples, total
from trtspec.measurement.textcheck import Ids

MAX_UNUSABLE = 0.01
"""Share of a domain's requests that may fail before its figures count as cherry-picked."""
WRONG_COUNT = 1.3
"""Tokens counted ÷ tokens of the text, or the reverse, beyond which the count is none. On 150 answers of the tiny pair
the sums of a domain differ by nothing (greedy) and by up to 0.6 % (sampled), an answer by up to 3 %."""
FEWEST_TOKENS = 50
LONG_STALL, MANY_MEDIANS = 5.0, 50.0
"""A wait between chunks is a stall from so many seconds, and so many times the mode's median wait."""


@dataclass(frozen=True)
class Problem:
    """Why a domain's evidence cannot be trusted. `code` is stable; `count` is how many answers show it."""

    code: str
    domain: str
    message: str
    count: int = 1
    severity: Severity = "invalid"


def audit(
    domain: str, samples: Samples, *, greedy: bool, modes: Sequence[Mode] = MODES, k: int | None = None
) -> list[Problem]:
    """Every kind of problem of one domain, once each. `k`: the draft length that was asked for."""
    spec = samples.of(domain, "speculative")
    every = [*samples.of(domain, "target-only"), *spec]
    found: dict[str, Problem] = {}
    for answer in every:
        if answer.usable:
            for code, message in (*_faults(answer), *_longer(answer, k)):
                count = found[code].count + 1 if code in found else 1
                first = found[code].message if code in found else f"prompt {answer.prompt.id}: {message}"
                found[code] = Problem(code, domain, first, count)
    return [
        *found.values(),
        *([] if every else [Problem("answers.none", domain, "nothing was measured", 0)]),
        *(p for mode in modes if every for p in _unusable(domain, mode, samples.of(domain, mode))),
        *(_token_counts(domain, samples) if greedy else ()),
        *(_dropped(domain, samples) if greedy else ()),
        *(p for mode in modes for p in _stalls(domain, mode, samples.of(domain, mode))),
        *_silent_death(domain, [a for a in spec if a.usable]),
    ]


def _faults(answer: Answer) -> Iterator[tuple[str, str]]:
    """What one answer contradicts in itself."""
    if answer.output_tokens > answer.prompt.max_tokens:
        yield "tokens.too-many", f"{answer.output_tokens} tokens where max_tokens is {answer.prompt.max_tokens}"
    if answer.text and answer.output_tokens == 0:
        yield "tokens.none-for-text", "a text came back, and a count of 0 output tokens"
    yield from _chunk_faults(answer)
    if answer.mode == "target-only":
        return
    if answer.spec_mode != "speculative":
        yield "speculation.not-running", f"the server reports the mode {answer.spec_mode or 'nothing'!r}"
    elif answer.totals_only:
        yield from _totals(answer)
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


def _longer(answer: Answer, k: int | None) -> Iterator[tuple[str, str]]:
    """Rounds beyond what was asked for: the figures would be those of another K."""
    counted = answer.histogram
    if k is None or counted is None:
        return
    longest = max((n for n, row in enumerate(counted.to_wire().sum(axis=(0, 2))) if row), default=0)
    if longest > k:
        yield "counters.longer", f"a round drafted {longest} tokens where {k} were asked for"


def _chunk_faults(answer: Answer) -> Iterator[tuple[str, str]]:
    """The pieces of a stream against the whole of it."""
    counted = [c.tokens for c in answer.chunks]
    # An end token, or the rest of a character, is counted and shows nothing.
    if counted and None not in counted and sum(c or 0 for c in counted) > answer.output_tokens:
        yield "tokens.chunks", f"its chunks hold {sum(c or 0 for c in counted)} tokens of {answer.output_tokens}"
    times = [c.seconds for c in answer.chunks]
    if times != sorted(times) or (times and not 0.0 <= times[0] <= times[-1] <= answer.seconds + 1e-6):
        yield "timing.impossible", "a chunk came before the one before it, or after the end"


def _totals(answer: Answer) -> Iterator[tuple[str, str]]:
    """Sums without rounds, against each other and the tokens of the answer."""
    accepted, drafted = answer.accepted or 0, answer.drafted or 0
    if accepted > drafted:
        yield "counters.disagree", f"{accepted} tokens accepted of {drafted} drafted"
    if accepted > answer.output_tokens:
        yield "counters.tokens", f"{accepted} tokens accepted, and {answer.output_tokens} output tokens"
    elif answer.rounds and answer.rounds + accepted - answer.output_tokens not in range(answer.rounds + 1):
        yield "counters.tokens", f"{answer.rounds} rounds and {accepted} accepted for {answer.output_tokens} tokens"


def _unusable(domain: str, mode: Mode, answers: list[Answer]) -> Iterator[Problem]:
    failed = [a for a in answers if not a.usable]
    if not answers:
        yield Problem("answers.none", domain, f"nothing was measured in the mode {mode}", 0)
    elif len(failed) > MAX_UNUSABLE * len(answers):
        first = f"{len(failed)} of {len(answers)} {mode} requests failed, first {failed[0].prompt.id}"
        yield Problem("answers.unusable", domain, f"{first}: {failed[0].fault}", len(failed))


def _dropped(domain: str, samples: Samples) -> Iterator[Problem]:
    """An answer without anything where the other mode has one: a request that was dropped and called a success."""
    empty = [(a, b) for a, b in samples.pairs(domain) if (a.output_tokens == 0) != (b.output_tokens == 0)]
    if empty:
        a, b = empty[0]
        which = a.mode if a.output_tokens == 0 else b.mode
        text = f"prompt {a.prompt.id}: no token {which}, {max(a.output_tokens, b.output_tokens)} in the other mode"
        yield Problem("answers.empty", domain, text, len(empty))


def _stalls(domain: str, mode: Mode, answers: list[Answer]) -> Iterator[Problem]:
    """Waits that no step of a model explains: figures of speed would be figures of these."""
    usable = [a for a in answers if a.usable]
    waits = [(max([a.first_token_seconds or 0.0, *a.gaps]), a) for a in usable]
    gaps = [gap for a in usable for gap in a.gaps]
    limit = max(LONG_STALL, MANY_MEDIANS * median(gaps)) if gaps else LONG_STALL
    stalled = [(wait, a) for wait, a in waits if gaps and wait > limit]
    if len(stalled) > MAX_UNUSABLE * len(usable):
        wait, first = stalled[0]
        text = f"{len(stalled)} of {len(usable)} {mode} answers stalled, first {first.prompt.id} for {wait:.1f} s"
        yield Problem("timing.stalled", domain, f"{text}; the median wait is {median(gaps):.3f} s", len(stalled))


def wrong_counts(domain: str, samples: Samples, ids: Ids) -> list[Problem]:
    """Output tokens as the server counted them against its texts, encoded anew with the deployment's tokenizer."""
    found = []
    own = len(ids(""))
    for mode in MODES:
        answers = [a for a in samples.of(domain, mode) if a.usable]
        said = sum(a.output_tokens for a in answers)
        real = sum(max(0, len(ids(a.text)) - own) for a in answers)
        if max(said, real) >= FEWEST_TOKENS and not real / WRONG_COUNT <= said <= real * WRONG_COUNT:
            text = f"{mode}: the server counted {said} output tokens, its texts have {real}"
            found.append(Problem("tokens.text", domain, text, len(answers)))
    return found


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
