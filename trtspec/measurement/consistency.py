"""Does a result document agree with itself? One that was edited, cut off or glued together does not.

A verdict rests on the rows of the prompts, people read the figures, and both come from one measurement: what one of
them says follows from the other. A document in which it does not is no evidence, whoever changed it and why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.measurement.audit import MAX_UNUSABLE
from trtspec.measurement.datasets import dataset_problems
from trtspec.measurement.parts import QualityRow
from trtspec.measurement.result import DomainResult, Exactness, Figures, Performance, PromptRow, ResultDocument
from trtspec.measurement.summary import speedup_over

_COUNTERS = ("rounds", "drafted", "tested", "accepted", "emitted")
_CLOSE = 1e-6
_ALWAYS_INVALID = ("counters.", "tokens.", "answers.", "timing.", "speculation.", "quality.")
"""Codes of problems that are never less than that (docs/measuring.md)."""


class Contradiction(NamedTuple):
    """What the document says at a key, and what the rest of it says should stand there."""

    key: str
    found: object
    expected: str


def contradictions(result: ResultDocument) -> Iterator[Contradiction]:
    """Every place where a document says two things, the rows first: verdicts rest on them."""
    yield from _names("domains", [d.domain for d in result.domains])
    for i, domain in enumerate(result.domains):
        yield from _domain(f"domains.{i}", domain, result)
    yield from _overall(result)
    yield from _looks(result)
    for i, row in enumerate(result.quality):
        yield from _quality(f"quality.{i}", row, sum(d.prompts for d in result.domains))
    yield from _problems(result)


def _names(key: str, names: Sequence[str]) -> Iterator[Contradiction]:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        yield Contradiction(key, f"{twice[0]!r} twice", "each once")


def _domain(key: str, domain: DomainResult, result: ResultDocument) -> Iterator[Contradiction]:
    told = {p.code for p in result.problems if p.domain == domain.domain}
    yield from _names(f"{key}.rows", [row.id for row in domain.rows])
    if domain.prompts != len(domain.rows):
        yield Contradiction(f"{key}.prompts", domain.prompts, f"{len(domain.rows)}, the number of rows")
    for j, row in enumerate(domain.rows):
        yield from _row(f"{key}.rows.{j}", row, told)
    yield from _answered(key, domain, result, told)
    if domain.exactness is not None:
        yield from _exactness(f"{key}.exactness", domain.exactness, domain.rows)
    yield from _counted(f"{key}.figures", domain.figures, domain.rows)
    yield from _longest(f"{key}.figures", domain.figures, told, result)
    yield from _speed(f"{key}.figures", domain.figures)


def _row(key: str, row: PromptRow, told: set[str]) -> Iterator[Contradiction]:
    """A round tests up to its first rejection and emits what it accepted, and one token more unless it was cut."""
    if row.tested is None:
        return
    rounds, drafted, accepted, emitted = (getattr(row, name) for name in ("rounds", "drafted", "accepted", "emitted"))
    if None in (rounds, drafted, accepted, emitted) or row.speculative is None:
        yield Contradiction(f"{key}.tested", row.tested, "null, as other counters or the answer are")
        return
    if not accepted <= row.tested <= drafted:
        yield Contradiction(f"{key}.tested", row.tested, f"between {accepted} accepted and {drafted} drafted")
    if row.tested - accepted > rounds:
        yield Contradiction(f"{key}.accepted", accepted, f"at most one rejection in each of {rounds} rounds")
    if not accepted <= emitted <= accepted + rounds:
        yield Contradiction(f"{key}.emitted", emitted, f"between {accepted} accepted and one more in {rounds} rounds")
    tokens = row.speculative.output_tokens
    if emitted - tokens not in (0, 1) and "counters.tokens" not in told:
        yield Contradiction(f"{key}.emitted", emitted, f"{tokens} output tokens of the answer, or an end token more")


def _answered(key: str, domain: DomainResult, result: ResultDocument, told: set[str]) -> Iterator[Contradiction]:
    """Prompts without an answer are named, and too many of them are a problem of the evidence."""
    if result.interrupted:
        return
    for mode in result.conditions.modes:
        name = "target_only" if mode == "target-only" else "speculative"
        missing = sum(getattr(row, name) is None for row in domain.rows)
        named = sum(u.mode == mode for u in domain.unusable)
        if missing > named:
            yield Contradiction(f"{key}.unusable", f"{named} {mode}", f"{missing}, the rows without such an answer")
        if missing > MAX_UNUSABLE * len(domain.rows) and not told & {"answers.unusable", "answers.none"}:
            yield Contradiction("problems", "none of them", f"{domain.domain}: {missing} {mode} requests failed")


def _exactness(key: str, found: Exactness, rows: Sequence[PromptRow]) -> Iterator[Contradiction]:
    equal = sum(row.equal is True for row in rows)
    both = sum(row.equal is not None for row in rows)
    different = len(found.differences)
    kinds = Counter(d.kind for d in found.differences)
    for name, said, is_ in (
        ("compared", found.compared, both),
        ("equal", found.equal, equal),
        ("differences", different, both - equal),
        ("near_ties", found.near_ties, kinds["near-tie"]),
        ("real", found.real, kinds["real"]),
        ("undiagnosed", found.undiagnosed, kinds["undiagnosed"]),
    ):
        if said != is_:
            yield Contradiction(f"{key}.{name}", said, f"{is_}, by the rows and the differences")


def _counted(key: str, figures: Figures, rows: Iterable[PromptRow]) -> Iterator[Contradiction]:
    """The histogram is the sum of the rows, and the figures follow from it."""
    counted = [row for row in rows if row.tested is not None]
    try:
        histogram = figures.rounds
    except ValueError as error:
        yield Contradiction(f"{key}.histogram", error, "rounds uncut and cut, by drafted and accepted: [2, K+1, K+1]")
        return
    if histogram is None:
        if counted:
            yield Contradiction(f"{key}.histogram", "null", f"the rounds of {len(counted)} rows")
        return
    for name in _COUNTERS:
        said, is_ = getattr(histogram, name), sum(getattr(row, name) or 0 for row in counted)
        if said != is_:
            yield Contradiction(f"{key}.histogram", f"{said} {name}", f"{is_}, the sum of the rows")
            return
    yield from _follows(key, figures, histogram)


def _longest(key: str, figures: Figures, told: set[str], result: ResultDocument) -> Iterator[Contradiction]:
    """No round is longer than the K that the document is about."""
    k = result.conditions.k
    drafted = [n for half in figures.histogram or () for n, row in enumerate(half) if any(row)]
    if max(drafted, default=0) > k and "counters.longer" not in told:
        yield Contradiction(f"{key}.histogram", f"rounds of {max(drafted)} draft tokens", f"at most {k}, conditions.k")


def _follows(key: str, figures: Figures, histogram: RoundHistogram) -> Iterator[Contradiction]:
    """What derives from the histogram (docs/measuring.md has the definitions)."""
    pairs: list[tuple[str, float | None, float | None]] = [
        ("alpha", None if figures.alpha is None else figures.alpha.point, histogram.alpha()),
        ("draft_acceptance_rate", figures.draft_acceptance_rate, histogram.draft_acceptance_rate()),
        ("acceptance_length", figures.acceptance_length, histogram.acceptance_length()),
    ]
    positions, true = figures.per_position or (), histogram.per_position()
    if len(positions) != len(true):
        yield Contradiction(f"{key}.per_position", f"{len(positions)} positions", str(len(true)))
    pairs += [(f"per_position.{i}", a, b) for i, (a, b) in enumerate(zip(positions, true, strict=False))]
    yield from _differing(key, pairs, "the histogram")


def _differing(
    key: str, pairs: Iterable[tuple[str, float | None, float | None]], source: str
) -> Iterator[Contradiction]:
    for name, said, is_ in pairs:
        same = said == is_ if said is None or is_ is None else math.isclose(said, is_, rel_tol=_CLOSE, abs_tol=_CLOSE)
        if not same:
            yield Contradiction(
                f"{key}.{name}", "null" if said is None else said, f"{is_ if is_ is None else f'{is_:g}'}, by {source}"
            )


def _speed(key: str, figures: Figures) -> Iterator[Contradiction]:
    """Sums are those of the blocks; the speed-up follows from the blocks of both modes."""
    for mode in ("target_only", "speculative"):
        speed: Performance | None = getattr(figures, mode)
        if speed is None:
            continue
        tokens, wall = sum(b.output_tokens for b in speed.blocks), sum(b.wall_seconds for b in speed.blocks)
        pairs: list[tuple[str, float | None, float | None]] = [
            ("requests", speed.requests, sum(b.requests for b in speed.blocks)),
            ("output_tokens", speed.output_tokens, tokens),
            ("wall_seconds", speed.wall_seconds, wall),
            ("tokens_per_second", speed.tokens_per_second, tokens / wall if wall > 0 else None),
        ]
        yield from _differing(f"{key}.{mode}", pairs, "its blocks")
    found = speedup_over([figures])
    said = None if figures.speedup is None else figures.speedup.point
    yield from _differing(key, [("speedup", said, None if found is None else found.point)], "the blocks")


def _overall(result: ResultDocument) -> Iterator[Contradiction]:
    """`overall` is all domains together."""
    yield from _counted("overall", result.overall, [row for d in result.domains for row in d.rows])
    yield from _speed("overall", result.overall)
    for mode in ("target_only", "speculative"):
        parts = [getattr(d.figures, mode) for d in result.domains]
        whole: Performance | None = getattr(result.overall, mode)
        own = [] if whole is None else [block.model_dump() for block in whole.blocks]
        theirs = [block.model_dump() for part in parts if part is not None for block in part.blocks]
        if sorted(map(repr, own)) != sorted(map(repr, theirs)):
            yield Contradiction(f"overall.{mode}.blocks", f"{len(own)} blocks", "those of the domains")


def _looks(result: ResultDocument) -> Iterator[Contradiction]:
    looks, asked = result.looks, sum(d.prompts for d in result.domains)
    if looks is None:
        return
    wrong = list(looks.at) != sorted(looks.at) or looks.at[-1] > asked or asked > looks.budget
    # Where nothing could follow, the last look was at everything: narrower intervals rest on that.
    if wrong or (result.stopped == "all" and looks.budget != asked):
        said = f"{list(looks.at)} of {looks.budget}, stopped: {result.stopped}"
        yield Contradiction("looks", said, f"rising up to the {asked} prompts asked")


def _quality(key: str, row: QualityRow, most: int) -> Iterator[Contradiction]:
    if row.n > most:
        yield Contradiction(f"{key}.n", row.n, f"at most {most} prompts")
    lost, won = row.only_target_only, row.only_speculative
    if lost is None or won is None or row.target_only is None or row.speculative is None:
        return
    fell = round((row.target_only - row.speculative) * row.n)
    if lost + won > row.n or lost - won != fell:
        yield Contradiction(f"{key}.only_target_only", lost, f"{won + fell}, by the shares of right answers")


def _problems(result: ResultDocument) -> Iterator[Contradiction]:
    """What the document itself shows to be wrong stands among its problems, as bad as it is."""
    listed = {(p.code, p.domain, p.severity) for p in result.problems}
    due = [(p.code, p.domain, p.severity) for p in dataset_problems(result.datasets)]
    if result.counters is not None and result.counters.outcome == "disagree":
        due.append(("counters.server", "", "invalid"))
    if result.interrupted or result.stopped == "interrupted":
        due.append(("interrupted", "", "release"))
    for code, domain, severity in due:
        if severity != "note" and (code, domain, severity) not in listed:
            yield Contradiction("problems", f"no {code}", f"{code} ({severity}){f' of {domain}' if domain else ''}")
    for i, problem in enumerate(result.problems):
        if problem.code.startswith(_ALWAYS_INVALID) and problem.severity != "invalid":
            yield Contradiction(f"problems.{i}.severity", problem.severity, f"invalid, as {problem.code} always is")
    sound = all(p.severity == "note" for p in result.problems)
    if result.release_valid and not sound:
        yield Contradiction("release_valid", "true", "false: there are problems that are more than notes")
