"""A profile for people: acceptance per domain at the configured K, and over K."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trtspec.measurement.profile_result import AtK, DomainProfile, ProfileDocument
from trtspec.measurement.reading import Rule
from trtspec.measurement.result import Estimate

DEFINITIONS = (
    "α = accepted ÷ tested draft tokens; [95 %] is an interval over prompts. Tokens a round count the "
    "target's own. P(i): position i of a round is accepted. Loops: answers whose last half repeats itself, "
    "which flatters α."
)
RULE_NAMES: dict[Rule, str] = {
    "tokens": "equal tokens, both drawn with the same random numbers (as in one process)",
    "tokens-independent": "equal tokens, each model drawing with numbers of its own",
    "logits": "the rejection rule on both distributions",
}
POSITIONS = 8
"""Positions and draft lengths shown at most."""


def print_profile(out: Console, document: ProfileDocument, k: int, rule: Rule) -> None:
    """The terminal report; `rule` is the one that the configuration will be served with."""
    out.print(render(document, k, rule))


def render(document: ProfileDocument, k: int, rule: Rule) -> RenderableType:
    """Conditions, domains, draft lengths and, when sampling, the rules beside each other."""
    k = min(k, document.conditions.k_max)
    parts: list[RenderableType] = [Text(_title(document), "bold"), Text(), _domains(document, k, rule)]
    parts += [Text(), Text(f"All domains, by draft length ({rule})", "bold"), _lengths(document.overall, rule, k)]
    if len(document.overall.rules) > 1:
        parts += [Text(), Text(f"All domains, by rule of acceptance, K={k}", "bold"), _rules(document.overall, k, rule)]
    return Group(*parts, Text(), Text(DEFINITIONS, "dim"))


def _title(document: ProfileDocument) -> str:
    target, draft = document.target.conditions, document.draft.conditions
    how = ", ".join(dict.fromkeys(f"{c['dtype']} on {c['engine']} ({c['device']})" for c in (target, draft)))
    return f"{document.pair}: {document.conditions.summary()}; {how}; measured {document.created}"


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", overflow="fold")
    return table


def _domains(document: ProfileDocument, k: int, rule: Rule) -> Table:
    table = _table("domain", "prompts", "tokens", f"α [95 %], K={k}", "tokens a round", f"P(1..{k})", "loops")
    rows: Sequence[DomainProfile] = document.domains
    for row in (*rows, document.overall) if len(rows) > 1 else rows:
        at = row.rules[rule][k - 1]
        cells = [str(row.prompts), f"{row.tokens:,}", interval(at.alpha), interval(at.acceptance_length, 2, False)]
        table.add_row(row.domain, *cells, _positions(at), f"{row.degenerate:.0%}")
    return table


def _lengths(row: DomainProfile, rule: Rule, k: int) -> Table:
    table = _table("K", "α [95 %]", "α, mean of prompts", "tokens a round [95 %]", "accepted ÷ drafted")
    every = row.rules[rule]
    step = max(1, -(-len(every) // POSITIONS))
    for at in every:
        if (at.k - 1) % step == 0 or at.k == k:
            mark = "*" if at.k == k else ""
            table.add_row(
                f"{at.k}{mark}",
                interval(at.alpha),
                number(at.alpha_macro),
                interval(at.acceptance_length, 2),
                number(at.draft_acceptance_rate),
            )
    return table


def _rules(row: DomainProfile, k: int, chosen: Rule) -> Table:
    table = _table("rule", "α [95 %]", "α expected", "tokens a round", "what it is")
    table.columns[-1].justify = "left"
    for rule, every in row.rules.items():
        at = every[k - 1]
        name = f"{rule} *" if rule == chosen else rule
        length = number(at.acceptance_length.point if at.acceptance_length else None, 2)
        table.add_row(name, interval(at.alpha), number(at.alpha_expected), length, RULE_NAMES[rule])
    return table


def _positions(at: AtK) -> str:
    return " ".join("-" if p is None else f"{p:.2f}".lstrip("0") for p in at.per_position[:POSITIONS])


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash for what was not measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def interval(found: Estimate | None, digits: int = 3, ends: bool = True) -> str:
    """point [low, high], or a dash for what was not measured."""
    if found is None:
        return "-"
    if not ends or found.low is None or found.high is None:
        return f"{found.point:.{digits}f}"
    return f"{found.point:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"
