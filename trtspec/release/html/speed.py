"""Speed: predicted against measured, throughput against latency with and without drafts, and latencies."""

from __future__ import annotations

from collections.abc import Sequence

from trtspec.measurement.result import CurvePoint, Estimate, Performance, ResultDocument
from trtspec.release import words
from trtspec.release.gates import Judgement
from trtspec.release.html import charts
from trtspec.release.html.section import BOTH, Chart, Section, Table, numeric
from trtspec.release.policies.prediction import ALL, Prediction, predictor

_DRAFTS = {"target-only": "without", "speculative": "with"}
_PERCENTILES = ("p50", "p90", "p99")


def speed(result: ResultDocument, judgement: Judgement) -> Section:
    """Everything that was timed."""
    closed = [p for p in result.curve if p.concurrency is not None]
    opened = [p for p in result.curve if p.arrival_rate is not None]
    drawn = (
        _predicted_and_measured(result, judgement),
        _curve("closed", "Throughput and latency", closed, "requests in flight"),
        _curve("open", "Throughput and latency, requests arriving at random", opened, "requests/s arriving"),
    )
    tables = [_throughput(result), _latencies(result)]
    if result.curve:
        tables.append(_points(result.curve))
    text = "" if result.curve else "Throughput against latency at several loads: not measured (no sweep)."
    return Section("Speed", text, tuple(c for c in drawn if c), tuple(tables))


def predicted(result: ResultDocument) -> Prediction | None:
    """The speed-up that measured acceptance and measured step times give; None where a part was not measured."""
    made = None if result.costs is None else predictor(result, ALL, result.costs, result)
    return None if made is None else made.predict(result.conditions.k)


def _predicted_and_measured(result: ResultDocument, judgement: Judgement) -> Chart | None:
    measured, expected = judgement.speedup or result.overall.speedup, predicted(result)
    if measured is None:
        return None
    rows = [charts.Span("measured", measured.point, measured.low, measured.high, words.estimate(measured))]
    caption = f"Throughput with ÷ without drafts, {result.conditions.concurrency} in flight."
    if expected is None:
        caption += " Predicted: not measured, step times are missing."
    else:
        own = expected.speedup
        rows.append(charts.Span("predicted", own.point, own.low, own.high, words.estimate(own), hollow=True))
        caption += f" {_error(expected, measured)}"
    ends = [row.high or row.point for row in rows]
    top = max(1.25, 1.1 * max(ends))
    svg = charts.spans("speedup", "Predicted and measured speed-up", rows, top=top, marks=[(1.0, "target alone")])
    return Chart("Predicted and measured speed-up", svg, caption)


def _error(expected: Prediction, measured: Estimate) -> str:
    off = 100 * (expected.speedup.point / measured.point - 1) if measured.point else 0.0
    scope = "whole requests" if expected.scope == "requests" else "decoding without prompts"
    return (
        "Predicted from acceptance by position and step times of all domains: seconds of the target alone ÷ seconds of "
        f"rounds (K draft steps + verification + overhead), for {scope}; {off:+.0f} % from the measured one."
    )


def _curve(name: str, title: str, points: Sequence[CurvePoint], load: str) -> Chart | None:
    found = [p for p in points if p.tokens_per_second is not None and p.latency is not None]
    if not found:
        return None
    lines: tuple[tuple[str, str, charts.Kind], ...] = (
        ("target-only", "target alone", "without"),
        ("speculative", "with drafts", "with"),
    )
    series = [charts.Series(n, kind, tuple(_place(p) for p in found if p.mode == mode)) for mode, n, kind in lines]
    shown = [each for each in series if each.points]
    svg = charts.curves(name, title, shown, across="tokens/s", up="latency p50, s")
    keys = tuple(key for key in BOTH if any(each.kind == key.kind for each in shown))
    return Chart(title, svg, f"Down and to the right is better. Numbers at points: {load}.", keys)


def _place(point: CurvePoint) -> tuple[float, float, str]:
    load = point.concurrency if point.concurrency is not None else point.arrival_rate
    p50 = point.latency.p50 if point.latency else 0.0
    return (point.tokens_per_second or 0.0, p50, f"{load:g}")


def _throughput(result: ResultDocument) -> Table:
    headings = ("domain", "tokens/s without", "tokens/s with", "speed-up [95 %]", "requests/s with")
    rows = [
        (
            d.domain,
            words.rate(d.figures.target_only, 1),
            words.rate(d.figures.speculative, 1),
            words.estimate(d.figures.speedup),
            words.number(d.figures.speculative.requests_per_second if d.figures.speculative else None),
        )
        for d in result.domains
    ]
    caption = f"Throughput, {result.conditions.concurrency} in flight; the baseline is the target alone in this run."
    return Table(caption, headings, rows, numeric(headings))


def _latencies(result: ResultDocument) -> Table:
    kinds = ("first token", "per token", "whole answer")
    headings = ("domain", "drafts", "requests", *(f"{kind} {p}" for kind in kinds for p in _PERCENTILES))
    rows = [
        (d.domain, mode, f"{each.requests:,}", *_timings(each))
        for d in result.domains
        for mode, each in zip(_DRAFTS.values(), (d.figures.target_only, d.figures.speculative), strict=True)
        if each
    ]
    caption = "Latency. Per token counts tokens, not chunks of text."
    return Table(caption, headings, rows, numeric(headings, 2))


def _timings(each: Performance | CurvePoint) -> tuple[str, ...]:
    return (
        *words.percentiles(each.first_token),
        *words.percentiles(each.per_token),
        *words.percentiles(each.latency),
    )


def _points(points: Sequence[CurvePoint]) -> Table:
    headings = (
        "load",
        "drafts",
        "requests",
        "failed",
        "tokens/s",
        "requests/s",
        "latency p50",
        "p90",
        "p99",
        "goodput/s",
    )
    rows = [
        (
            f"{p.concurrency} in flight" if p.concurrency is not None else f"{p.arrival_rate:g}/s arriving",
            _DRAFTS[p.mode],
            f"{p.requests:,}",
            f"{p.failed:,}",
            words.number(p.tokens_per_second, 1),
            words.number(p.requests_per_second),
            *words.percentiles(p.latency),
            words.number(p.goodput.requests_per_second if p.goodput else None),
        )
        for p in points
    ]
    return Table("Each mode at each load", headings, rows, numeric(headings, 2))
