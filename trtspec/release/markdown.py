"""The short report for a pull request, as GitHub Markdown: verdict, domains, gates, where the rest is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trtspec.measurement.result import DomainResult, ResultDocument
from trtspec.release import words
from trtspec.release.gates import Judgement
from trtspec.release.rows import GateRow

MOST_SIGNS = 60_000
"""GitHub takes 65,536 of a comment; the rest is for what a bot puts around it."""
_MOST_ROWS = 40
_LONGEST_CELL = 300
_DOMAINS = ("domain", "prompts", "α [95 %]", "tokens a round", "speed-up [95 %]", "greedy equal", "drafts")
# Signs that begin markup, and those that GitHub makes links and mentions of.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")
_LINKS = re.compile(r"(@|#(?=\d)|GH-(?=\d)|https?:|www(?=\.))", re.IGNORECASE)
_GAP = "\u200b"


def markdown(result: ResultDocument, judgement: Judgement, details: str = "report.html") -> str:
    """The whole text; `details` says where the page is: a file name, or an address."""
    parts = [
        f"### {words.SIGNS[judgement.verdict]} {escape(result.pair)}: {judgement.verdict}",
        f"**{escape(judgement.headline(), 1000)}**",
        *(f"> **Note:** {line}" for line in words.cautions(result)),
        f"Measured {escape(result.created)}: {escape(result.conditions.summary())}.",
        _table(_DOMAINS, [_cells(d, judgement, result) for d in result.domains]),
        "#### Gates",
        _table(("gate", "subject", "outcome", "found [95 %]", "limit", "why"), [_gate(r) for r in _judged(judgement)]),
        *_differences(result),
        f"<sub>{words.DEFINITIONS}</sub>",
        _link(details),
    ]
    return _fitting(parts)


def escape(text: str, longest: int = _LONGEST_CELL) -> str:
    """Text that stays text: no markup, no link, no mention, one line."""
    whole = words.visible(text).replace("\n", "⏎").replace("\t", " ")
    cut = whole if len(whole) <= longest else f"{whole[: longest - 1]}…"
    return _LINKS.sub(lambda found: found.group(0) + _GAP, _MARKUP.sub(r"\\\1", cut))


def _judged(judgement: Judgement) -> list[GateRow]:
    """What blocks comes first; figures that no limit is set for are left to the page."""
    order = ("invalid", "fail", "undecided", "not measured", "off", "pass")
    return sorted(
        (row for row in judgement.rows if row.outcome != "not judged"), key=lambda row: order.index(row.outcome)
    )


def _gate(row: GateRow) -> tuple[str, ...]:
    sign = f"{words.SIGNS[row.outcome]} {row.outcome}"
    return row.name, row.subject, sign, words.found_of(row), words.limit_of(row), row.reason


def _cells(domain: DomainResult, judgement: Judgement, result: ResultDocument) -> tuple[str, ...]:
    figures, exact = domain.figures, domain.exactness
    return (
        domain.domain,
        str(domain.prompts),
        words.alpha(figures),
        words.number(figures.acceptance_length),
        words.estimate(figures.speedup),
        "–" if exact is None else f"{exact.equal}/{exact.compared}",
        words.drafts_of(domain.domain, judgement, result),
    )


def _differences(result: ResultDocument) -> list[str]:
    rows = [
        (d.domain, x.prompt, x.kind, words.number(x.gap, 4), f"…{x.before[-60:]}", x.target_only, x.speculative)
        for d in result.domains
        if d.exactness
        for x in d.exactness.differences
    ]
    if not rows:
        return []
    headings = ("domain", "prompt", "kind", "logit gap", "after", "target alone", "with drafts")
    table = _table(headings, rows[:5])
    return [f"<details><summary>First differences of greedy texts: {len(rows)}</summary>\n\n{table}\n\n</details>"]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        list(map(escape, headings)),
        ["---"] * len(headings),
        *(list(map(escape, row)) for row in rows[:_MOST_ROWS]),
    ]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    left = len(rows) - _MOST_ROWS
    return text if left <= 0 else f"{text}\n\n… and {left} more in the report."


def _link(details: str) -> str:
    return f"Details: [report]({details})" if "://" in details else f"Details: `{details}` beside this file."


def _fitting(parts: list[str]) -> str:
    """Whole parts only: a table that is cut in the middle is no table."""
    while len("\n\n".join(parts)) > MOST_SIGNS and len(parts) > 3:
        longest = max(range(2, len(parts)), key=lambda i: len(parts[i]))
        parts = [*parts[:longest], "*A part was left out: it is too long for a comment.*", *parts[longest + 1 :]]
    return "\n\n".join(parts) + "\n"
