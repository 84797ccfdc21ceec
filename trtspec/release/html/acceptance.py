"""Acceptance: by position, by domain, and how many tokens rounds accept."""

from __future__ import annotations

from collections.abc import Sequence

from trtspec.measurement.result import DomainResult, Estimate, Figures, ResultDocument
from trtspec.release import words
from trtspec.release.gates import Judgement
from trtspec.release.html import charts
from trtspec.release.html.section import Chart, Section, Table, numeric


def acceptance(result: ResultDocument, judgement: Judgement) -> Section:
    """Everything that was counted."""
    figures = result.overall
    drawn = (_by_position(figures), _by_domain(result.domains, judgement), _per_round(figures))
    tables = [_domains(result, judgement)]
    if any(d.figures.per_position for d in result.domains):
        tables.append(_positions(result))
    return Section("Acceptance", charts=tuple(c for c in drawn if c), tables=tuple(tables))


def _by_position(figures: Figures) -> Chart | None:
    if not figures.per_position:
        return None
    intervals = position_intervals(figures)
    bars = [
        charts.Bar(str(i), share, *_ends(found))
        for i, (share, found) in enumerate(zip(figures.per_position, intervals, strict=True), 1)
    ][: _reached(figures)]
    svg = charts.columns("positions", "Acceptance by position", bars, across="position in the round", top=1.0)
    whiskers = "95 % intervals over prompts" if any(intervals) else "intervals were not measured"
    return Chart("By position", svg, f"Share of the rounds that accepted the token at this position; {whiskers}.")


def _reached(figures: Figures) -> int:
    """Positions up to the last one that was ever tested: an engine may allow more drafts than were asked for."""
    shares = figures.per_position or ()
    return max((i for i, share in enumerate(shares, 1) if share is not None), default=0)


def position_intervals(figures: Figures) -> Sequence[Estimate | None]:
    """One for each position; None where there is none."""
    count = len(figures.per_position or ())
    found = figures.position_intervals
    return found if found and len(found) == count else [None] * count


def _by_domain(domains: Sequence[DomainResult], judgement: Judgement) -> Chart | None:
    rows = [
        charts.Span(
            d.domain,
            alpha.point,
            alpha.low,
            alpha.high,
            words.alpha(d.figures) + (" off" if d.domain in judgement.switched_off else ""),
            hollow=d.domain in judgement.switched_off,
        )
        for d in domains
        if (alpha := d.figures.alpha or d.figures.alpha_bound)
    ]
    if not rows:
        return None
    alphas = [row for row in judgement.rows if row.rule in ("domain.alpha", "release.alpha")]
    floors = sorted({row.limit for row in alphas if row.limit is not None})
    marks = [(floor, f"floor {floor:g}") for floor in floors]
    svg = charts.spans("domains", "α by domain", rows, top=1.0, marks=marks[:2])
    return Chart(
        "By domain", svg, "α with its 95 % interval. Round: keeps drafts; square: served without. Dashed: floors."
    )


def _per_round(figures: Figures) -> Chart | None:
    counted = figures.rounds
    if counted is None or not counted.rounds:
        return None
    drafted = (counted.uncut + counted.cut)[1:]  # a round without drafts accepts nothing by necessity
    longest = int(drafted.any(axis=1).nonzero()[0].max(initial=-1)) + 1
    if not longest:
        return None
    rounds = drafted.sum(axis=0)[: longest + 1]
    bars = [charts.Bar(str(i), float(count)) for i, count in enumerate(rounds.tolist())]
    top = max(1.0, float(rounds.max()) * 1.12)
    svg = charts.columns("rounds", "Accepted per round", bars, across="accepted tokens", top=top, digits=0)
    return Chart("Accepted per round", svg, f"{counted.rounds:,} rounds; height is how many accepted so many tokens.")


def _domains(result: ResultDocument, judgement: Judgement) -> Table:
    headings = (
        "domain",
        "prompts",
        "α [95 %]",
        "α, mean of prompts",
        "accepted ÷ drafted",
        "tokens a round",
        "drafts",
    )
    rows = [
        (
            d.domain,
            f"{d.prompts:,}",
            words.alpha(d.figures),
            words.number(d.figures.alpha_macro),
            words.number(d.figures.draft_acceptance_rate),
            words.number(d.figures.acceptance_length),
            words.drafts_of(d.domain, judgement, result),
        )
        for d in result.domains
    ]
    return Table(
        "By domain. Accepted ÷ drafted falls as K grows and ranks no two K's.", headings, rows, numeric(headings)
    )


def _positions(result: ResultDocument) -> Table:
    k = max(_reached(d.figures) for d in result.domains)
    headings = ("domain", *(f"position {i}" for i in range(1, k + 1)))
    rows = [
        (d.domain, *(words.number(shares[i] if i < len(shares) else None) for i in range(k)))
        for d in result.domains
        if (shares := d.figures.per_position)
    ]
    return Table("P(position accepted)", headings, rows, numeric(headings))


def _ends(found: Estimate | None) -> tuple[float | None, float | None]:
    return (None, None) if found is None else (found.low, found.high)
