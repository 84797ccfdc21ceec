"""docs/llm-api.md says what the version table says."""

from __future__ import annotations

import pytest

from tests.conftest import PROJECT
from trtspec.backends.pytorch.formats import INSTEAD, READS
from trtspec.versions.llmapi import SPELLINGS, Spelling

PAGE = (PROJECT / "docs" / "llm-api.md").read_text(encoding="utf-8")


def row(spelling: Spelling) -> str:
    """The page's line for it."""

    def code(*names: str | None) -> str:
        return ", ".join(f"`{name}`" for name in names if name) or "-"

    mark = "" if spelling.evidence == "stated" else " †"
    offered = "" if spelling.stable else ", not offered"
    cells = (
        f"{spelling.span}{mark}{offered}",
        code(spelling.decoding_type),
        code(spelling.draft_model),
        code(spelling.schedule),
        code(spelling.window, spelling.threshold),
    )
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: str(spelling.span))
def test_every_spelling_has_its_row(spelling: Spelling) -> None:
    assert row(spelling) in PAGE.splitlines()


def test_formats_are_all_named() -> None:
    names = [*READS[1:], *INSTEAD]
    assert [name for name in names if name not in PAGE] == []
