"""Two runs side by side: each figure with both intervals and the difference, and what makes them hard to compare.

It describes; `trtspec gate --baseline` judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal

from trtspec.analysis.differences import difference_of
from trtspec.analysis.intervals import Interval
from trtspec.analysis.paired import independent_difference, paired_difference
from trtspec.measurement.result import Estimate, Figures, Performance, PromptRow, Record, ResultDocument
from trtspec.release.baseline import differences

Told = Literal["higher", "lower", "not told apart", "no interval", "not measured"]
How = Literal["same prompts", "apart", "none"]
_WHOLE = "all domains"
_APART: How = "apart"
_FEWEST = 3
"""Prompts that a paired interval needs."""


class FigureRow(Record):
    """One figure of one domain in both runs."""

    domain: str
    figure: str
    unit: str
    """Empty for a ratio."""
    a: Estimate | None
    b: Estimate | None
    difference: Estimate | None
    """b less a."""
    how: How
    """The difference is taken prompt by prompt over the same prompts, or from two runs apart."""
    told: Told
    """Whether b lies higher or lower; not told apart where the interval of the difference holds 0."""


class RunRow(Record):
    """Which run it was."""

    pair: str
    created: str
    conditions: str


class Comparison(Record):
    """Both runs."""

    a: RunRow
    b: RunRow
    warnings: tuple[str, ...]
    """What differs besides the pair; empty where only the pair can explain a difference."""
    same_prompts: int
    rows: tuple[FigureRow, ...]


def compare(a: ResultDocument, b: ResultDocument) -> Comparison:
    """All figures that either run measured."""
    rows: list[FigureRow] = []
    for domain, of_a, of_b in _sides(a, b):
        rows += _rows(domain, of_a, of_b)
    same = len(_shared(_prompts(a), _prompts(b)))
    return Comparison(a=_run(a), b=_run(b), warnings=differences(b, a), same_prompts=same, rows=tuple(rows))


Side = tuple[Figures | None, tuple[PromptRow, ...]]


def _sides(a: ResultDocument, b: ResultDocument) -> Iterator[tuple[str, Side, Side]]:
    yield _WHOLE, (a.overall, _prompts(a)), (b.overall, _prompts(b))
    of_a, of_b = ({d.domain: (d.figures, d.rows) for d in r.domains} for r in (a, b))
    nothing: Side = (None, ())
    for name in dict.fromkeys([*of_a, *of_b]):
        yield name, of_a.get(name, nothing), of_b.get(name, nothing)


def _rows(domain: str, a: Side, b: Side) -> Iterator[FigureRow]:
    figures = (a[0], b[0])
    yield _row(domain, "α", "", [f.alpha if f else None for f in figures], _by_prompt(a, b, _ALPHA))
    lengths = [_point(f.acceptance_length if f else None) for f in figures]
    yield _row(domain, "tokens a round", "", lengths, _by_prompt(a, b, _LENGTH))
    yield _row(domain, "speed-up", "", [f.speedup if f else None for f in figures], None)
    for name, unit, read in _TIMED:
        yield _row(domain, name, unit, [_point(read(f)) if f else None for f in figures], None)


def _tokens(speed: Performance | None) -> float | None:
    return speed.tokens_per_second if speed else None


def _p50(speed: Performance | None, name: str) -> float | None:
    found = getattr(speed, name, None)
    return found.p50 if found else None


Read = Callable[[PromptRow], tuple[float, float]]
_ALPHA: Read = lambda row: (row.accepted or 0, row.tested or 0)  # noqa: E731
_LENGTH: Read = lambda row: (row.emitted or 0, row.rounds or 0)  # noqa: E731
_TIMED: tuple[tuple[str, str, Callable[[Figures], float | None]], ...] = (
    ("tokens/s without drafts", "1/s", lambda f: _tokens(f.target_only)),
    ("tokens/s with drafts", "1/s", lambda f: _tokens(f.speculative)),
    ("first token p50, with drafts", "s", lambda f: _p50(f.speculative, "first_token")),
    ("per token p50, with drafts", "s", lambda f: _p50(f.speculative, "per_token")),
    ("whole answer p50, with drafts", "s", lambda f: _p50(f.speculative, "latency")),
)


def _row(
    domain: str, figure: str, unit: str, sides: list[Estimate | None], found: tuple[Interval, How] | None
) -> FigureRow:
    a, b = sides
    between, how = _difference(a, b, found)
    return FigureRow(
        domain=domain, figure=figure, unit=unit, a=a, b=b, difference=between, how=how, told=_told(a, b, between)
    )


def _difference(
    a: Estimate | None, b: Estimate | None, found: tuple[Interval, How] | None
) -> tuple[Estimate | None, How]:
    if a is None or b is None:
        return None, "none"
    if found is None:
        sides = _interval(a), _interval(b)
        if sides[0] is None or sides[1] is None:
            return Estimate(point=b.point - a.point, low=None, high=None, n=min(a.n, b.n)), "apart"
        between, how = difference_of(sides[0], sides[1]), _APART
    else:
        between, how = found
    return Estimate(point=between.point, low=between.low, high=between.high, n=between.n), how


def _told(a: Estimate | None, b: Estimate | None, between: Estimate | None) -> Told:
    if a is None or b is None or between is None:
        return "not measured"
    if between.low is None or between.high is None:
        return "no interval"
    if between.low > 0:
        return "higher"
    return "lower" if between.high < 0 else "not told apart"


def _by_prompt(a: Side, b: Side, read: Read) -> tuple[Interval, How] | None:
    """Prompt by prompt over those that both runs asked, where there are enough; else the two runs apart."""
    pairs = _shared(a[1], b[1])
    if len(pairs) >= _FEWEST:
        paired = paired_difference([read(x) for x, _ in pairs], [read(y) for _, y in pairs])
        return None if paired is None else (paired, "same prompts")
    apart = independent_difference(*([read(row) for row in side[1] if row.tested] for side in (a, b)))
    return None if apart is None else (apart, "apart")


def _shared(a: tuple[PromptRow, ...], b: tuple[PromptRow, ...]) -> list[tuple[PromptRow, PromptRow]]:
    """Rows of the same prompt, asked in the same way; a prompt that comes twice is left out."""
    ours, theirs = _by_hash(a), _by_hash(b)
    return [(ours[key], theirs[key]) for key in ours if key in theirs]


def _by_hash(rows: tuple[PromptRow, ...]) -> dict[str, PromptRow]:
    counted = [row for row in rows if row.sha256 and row.tested]
    times = Counter(row.sha256 for row in counted)
    return {row.sha256: row for row in counted if times[row.sha256] == 1}


def _prompts(result: ResultDocument) -> tuple[PromptRow, ...]:
    return tuple(row for d in result.domains for row in d.rows)


def _point(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(point=value, low=None, high=None, n=1)


def _interval(found: Estimate) -> Interval | None:
    if found.low is None or found.high is None:
        return None
    return Interval(found.low, found.high, found.point, found.n)


def _run(result: ResultDocument) -> RunRow:
    return RunRow(pair=result.pair, created=result.created, conditions=result.conditions.summary())
