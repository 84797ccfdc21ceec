"""A measurement on a terminal: figures with their conditions, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trtspec.measurement.result import CurvePoint, Estimate, Figures, Percentiles, ResultDocument

_STYLES = {"invalid": "red", "release": "yellow", "note": "dim"}


def show(out: Console, result: ResultDocument) -> None:
    """Acceptance, speed, loads, counters and problems."""
    out.print(Text(f"{result.pair}: {result.conditions.summary()}", "bold"))
    out.print(_acceptance(result))
    out.print(_speed(result))
    if result.curve:
        out.print(_curve(result.curve))
    if result.counters is not None:
        out.print(Text(f"Server's counters: {result.counters.outcome} ({result.counters.reason})"), soft_wrap=True)
    for problem in result.problems:
        where = f"{problem.domain}: " if problem.domain else ""
        line = f"{problem.severity}: {where}{problem.code}: {problem.message}"
        out.print(Text(line, _STYLES[problem.severity]), soft_wrap=True)


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", overflow="fold")
    return table


def _acceptance(result: ResultDocument) -> Table:
    table = _table("domain", "prompts", "α [95 %]", "÷ drafted", "tokens a round", "speed-up [95 %]", "greedy equal")
    for domain in result.domains:
        exact = domain.exactness
        equal = "–" if exact is None else f"{exact.equal}/{exact.compared}"
        table.add_row(domain.domain, str(domain.prompts), *_figures(domain.figures), equal)
    table.add_row("all", str(sum(d.prompts for d in result.domains)), *_figures(result.overall), "")
    return table


def _figures(found: Figures) -> Iterable[str]:
    bound = found.alpha is None and found.alpha_bound is not None
    yield ("≥ " if bound else "") + _estimate(found.alpha_bound if bound else found.alpha)
    yield _number(found.draft_acceptance_rate)
    yield _number(found.acceptance_length)
    yield _estimate(found.speedup)


def _speed(result: ResultDocument) -> Table:
    table = _table("mode", "tokens/s", "TTFT p50 / p99 s", "TPOT p50 / p99 s", "latency p50 / p99 s", "good")
    for mode, speed in (("target-only", result.overall.target_only), ("speculative", result.overall.speculative)):
        if speed is not None:
            good = "–" if speed.goodput is None else f"{speed.goodput.good}/{speed.goodput.requests}"
            waits = (_ends(p) for p in (speed.first_token, speed.per_token, speed.latency))
            table.add_row(mode, _number(speed.tokens_per_second, 1), *waits, good)
    return table


def _curve(points: Iterable[CurvePoint]) -> Table:
    headings = ("load", "mode", "tokens/s", "requests/s", "TTFT p50 / p99 s", "TPOT p50 / p99 s", "in flight", "failed")
    table = _table(*headings, "good")
    for p in points:
        load = f"{p.concurrency} in flight" if p.arrival_rate is None else f"{p.arrival_rate:g} a second"
        good = "–" if p.goodput is None else f"{p.goodput.good}/{p.goodput.requests}"
        table.add_row(
            load, p.mode, _number(p.tokens_per_second, 1), _number(p.requests_per_second), _ends(p.first_token),
            _ends(p.per_token), _number(p.in_flight, 1), str(p.failed), good,
        )  # fmt: skip
    return table


def _estimate(found: Estimate | None) -> str:
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.point:.3f}"
    return f"{found.point:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _ends(found: Percentiles | None) -> str:
    return "–" if found is None else f"{found.p50:.4f} / {found.p99:.4f}"
