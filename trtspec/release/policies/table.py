"""A study on a terminal: what to draft where, what was predicted, and how well."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table

from trtspec.release.policies.prediction import ALL
from trtspec.release.policies.study import Choice, Option, Study, gain

Row = tuple[str, ...]


def choices_table(study: Study) -> Table:
    """One line for each domain and load."""
    table = _table("domain", "in flight", "best K", "why", "proposed (predicted)")
    for choice in study.choices:
        best = "–" if choice.k is None else str(choice.k)
        table.add_row(choice.domain, str(choice.concurrency), best, choice.reason, _proposal(choice))
    return table


def options_table(study: Study) -> Table:
    """All domains together: every K at every load."""
    table = _table("in flight", "K", "measured", "predicted", "error")
    for row in _options(study):
        table.add_row(*row)
    return table


def sentences(study: Study) -> Iterator[str]:
    """Break-even loads, the model's error, what else to know."""
    for each in study.break_even:
        yield f"K={each.k} {each.says} ({each.source})."
    if study.mean_error is not None:
        yield (
            f"Predicted against measured: mean absolute error {100 * study.mean_error:.1f} % over {study.compared} "
            "pairs of K and load, of all domains together."
        )
    yield from study.notes


def _options(study: Study) -> Iterator[Row]:
    for choice in study.at(ALL):
        for option in choice.options:
            yield (str(choice.concurrency), str(option.k), *_gains(option))


def _gains(option: Option) -> Row:
    measured = "not measured" if option.measured is None else gain(option.measured)
    error = "" if option.error is None else f"{100 * option.error:+.0f} %"
    if option.predicted is None:
        return measured, "–", error
    scope = "" if option.predicted.scope == "requests" else ", decoding only"
    return measured, gain(option.predicted.speedup) + scope, error


def _proposal(choice: Choice) -> str:
    option = None if choice.proposed is None else choice.option(choice.proposed)
    if choice.proposed == 0:
        return "none pays"
    if option is None or option.predicted is None:
        return ""
    before = None if choice.k is None else choice.option(choice.k)
    if before is None or before.predicted is None:
        return f"K={option.k} ×{gain(option.predicted.speedup)}: measure it"
    more = option.predicted.speedup.point / before.predicted.speedup.point - 1.0
    return f"K={option.k}, {100 * more:.0f} % better: measure it"


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in headings:
        numeric = heading in {"in flight", "best K", "K", "error"}
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    return table
