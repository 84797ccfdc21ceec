"""The README.md of a draft that trtspec made: a model card in the hub's form, with the measured numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtspec import __version__

if TYPE_CHECKING:
    from trtspec.workflows.drafted import Measured

CARD = "README.md"
_INHERITED = re.compile(r"^(license|license_name|license_link|language):.*$", re.MULTILINE)


def card(target: Path, title: str, made: Sequence[str], measured: Measured | None, why_not: str = "") -> str:
    """The whole text. `made` says what was done, a line each; without a measurement `why_not` says why."""
    front = ["---", *_inherited(target), f"base_model: {target.name}", "tags: [speculative-decoding, draft]", "---"]
    body = [f"# {title}", "", f"A draft model for speculative decoding with `{target.name}`, not a model to talk to."]
    numbers = _numbers(measured.as_dict()) if measured else [f"Not measured: {why_not}."]
    lines = [*front, "", *body, "", *(f"- {line}" for line in made), "", "## Acceptance", "", *numbers, ""]
    return "\n".join([*lines, f"Written by trtspec {__version__}. The target's licence holds for this draft too.", ""])


def _inherited(target: Path) -> list[str]:
    """Licence and languages from the head of the target's own card."""
    try:
        text = (target / CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    head = text.split("---", 2)[1] if text.startswith("---") and text.count("---") > 1 else ""
    return [match.group(0) for match in _INHERITED.finditer(head)]


def _numbers(found: dict[str, Any]) -> list[str]:
    rows = {"all": found["all"], **(found["domains"] if len(found["domains"]) > 1 else {})}
    k = found["k"]
    lines = [
        f"Measured with K = {k}, temperature {found['temperature']:g}; "
        + ", ".join(f"{name} {value}" for name, value in found["conditions"].items())
        + ".",
        "",
        "| domain | prompts | tokens | α | 95% interval | tokens/round | P(position accepted) |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {domain} | " + " | ".join(_cells(row)) + " |" for domain, row in rows.items()]
    return [*lines, "", *found["verdict"]]


def _cells(row: dict[str, Any]) -> list[str]:
    interval = row["interval"]
    return [
        str(row["prompts"]),
        str(row["tokens"]),
        _number(row["alpha"], 3),
        "not measured" if interval is None else f"{interval[0]:.3f}–{interval[1]:.3f}",
        _number(row["tokens_per_round"], 2),
        " ".join(_number(share, 2) for share in row["per_position"]),
    ]


def _number(value: float | None, digits: int) -> str:
    return "not measured" if value is None else f"{value:.{digits}f}"
