"""The report as one HTML file that needs nothing else: no request, no script. What goes where; `sections` fills it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from trtspec import __version__
from trtspec.measurement.result import ResultDocument
from trtspec.release import words
from trtspec.release.gates import Judgement
from trtspec.release.html.section import Section
from trtspec.release.html.sections import sections

TEMPLATES = Path(__file__).parent / "templates"
_VERDICTS = {
    "pass": "Pass: may be released",
    "fail": "Fail: must not be released",
    "undecided": "Undecided: the evidence does not decide",
    "invalid": "Invalid: the evidence cannot be trusted",
}


@dataclass(frozen=True)
class Page:
    """Everything the template shows, as text; the template escapes it."""

    title: str
    pair: str
    conditions: str
    created: str
    state: str
    verdict: str
    reason: str
    cautions: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    definitions: str = words.DEFINITIONS
    version: str = __version__


def html(result: ResultDocument, judgement: Judgement) -> str:
    """The whole file."""
    css = Markup((TEMPLATES / "report.css").read_text(encoding="utf-8"))  # noqa: S704 - our own file
    return _template().render(page=page_of(result, judgement), css=css)


def page_of(result: ResultDocument, judgement: Judgement) -> Page:
    """What the page says."""
    verdict = judgement.verdict
    return Page(
        title=f"{result.pair}: {verdict} · trtspec",
        pair=result.pair,
        conditions=result.conditions.summary(),
        created=result.created,
        state=verdict,
        verdict=f"{words.SIGNS[verdict]} {_VERDICTS[verdict]}",
        reason=judgement.headline(),
        cautions=words.cautions(result),
        facts=facts(result, judgement),
        sections=sections(result, judgement),
    )


def facts(result: ResultDocument, judgement: Judgement) -> tuple[tuple[str, str], ...]:
    """The few figures that are looked for first."""
    compared = [d.exactness for d in result.domains if d.exactness]
    equal = f"{sum(e.equal for e in compared)} of {sum(e.compared for e in compared)}"
    return (
        ("α, accepted ÷ tested", ("≥ " if judgement.alpha_is_bound else "") + words.estimate(judgement.alpha)),
        ("Tokens a round", words.number(result.overall.acceptance_length)),
        ("Speed-up over the target alone", words.estimate(judgement.speedup)),
        ("Greedy texts equal", equal if compared else words.NOT_MEASURED),
        ("Prompts", f"{sum(d.prompts for d in result.domains):,}"),
        ("Drafts", _drafts(judgement, result)),
    )


def _drafts(judgement: Judgement, result: ResultDocument) -> str:
    kept, off = len(judgement.kept), len(judgement.switched_off)
    where = f"K={result.conditions.k} in {kept} of {kept + off} domains"
    return where if kept else "in no domain"


@cache
def _template() -> jinja2.Template:
    world = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_finalize,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return world.get_template("report.html.j2")


def _finalize(value: Any) -> Any:
    """Control signs are made visible; what is markup already was made from escaped text."""
    return words.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
