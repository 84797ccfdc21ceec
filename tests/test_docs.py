"""What the pages promise is there: links lead somewhere, commands exist, configurations in them are valid."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import PROJECT
from trtspec.cli._verbs import VERBS
from trtspec.config.load import load_config

PAGES = sorted(
    PROJECT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=PROJECT, capture_output=True, text=True, check=False
    ).stdout.split()
) or sorted(PROJECT.glob("*.md"))


def name(path: Path) -> str:
    return str(path.relative_to(PROJECT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    for verb in re.findall(r"^(?:\| `)?trtspec ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert verb in VERBS, verb


@pytest.mark.parametrize("page", ["README.md", "docs/own-pair.md"])
def test_example_configurations_are_valid(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (PROJECT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        path = tmp_path / "example.yaml"
        path.write_text(block.replace("<commit>", "a" * 40))
        assert load_config(path, environ={}).name == yaml.safe_load(block)["name"]


@pytest.mark.parametrize("config", sorted((PROJECT / "configs").glob("*.yaml")), ids=name)
def test_shipped_configurations_are_valid(config: Path) -> None:
    assert load_config(config, environ={}).name == config.stem
