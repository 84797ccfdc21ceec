"""docs/engines.md says what the program knows: every change, every cause, every flag, and valid examples."""

from __future__ import annotations

import re

import yaml

from tests.backends.tensorrt.pairs import pair
from tests.conftest import PROJECT
from trtspec.backends.tensorrt.causes import causes
from trtspec.backends.tensorrt.flags import engine_flags
from trtspec.backends.tensorrt.rules import RULES
from trtspec.backends.tensorrt.subject import planned
from trtspec.versions import version

PAGE = (PROJECT / "docs" / "engines.md").read_text(encoding="utf-8")


CHANGES, _, FAILURES = PAGE.partition("## After the build")


def row(name: str, text: str) -> list[str]:
    found = re.search(rf"^\| `{name}` \| (.*) \|$", text, re.MULTILINE)
    assert found, f"no row for {name}"
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", found[1])]


def test_every_change_and_every_cause_has_its_row() -> None:
    for rule in RULES:
        why, outcome, fix = row(rule.name, CHANGES)
        assert (why, fix) == (rule.why, rule.fix or "-")
        assert outcome == ("works; you are told" if rule.breaks == "no" else "is refused")
    for cause in causes():
        said, fix, reports = row(cause.name, FAILURES)
        assert (said, fix) == (cause.cause.replace("({what})", "(named)"), cause.fix)
        assert reports == ", ".join(cause.sources)


def test_every_flag_has_its_reason() -> None:
    config = pair(speculation={"acceptance": "logits"})
    flags = engine_flags(config, planned(config, "target", version("1.2.1")))
    assert {name for name in flags if f"`--{name}" not in PAGE} == {"log_level"}


def test_the_examples_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        pair(engine=yaml.safe_load(block)["engine"])
