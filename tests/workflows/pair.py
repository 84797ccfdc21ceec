"""A copy of the shipped pair in a test's own folder, to be changed and broken."""

from __future__ import annotations

import shutil
from pathlib import Path

from trtspec.config import RunConfig, load_config

SHIPPED = Path(__file__).parents[2] / "configs"


def own_pair(folder: Path, *overrides: str) -> RunConfig:
    """configs/tiny.yaml with both models copied, so that a test may edit them; results go below `folder`."""
    if not (folder / "tiny").exists():
        shutil.copytree(SHIPPED / "tiny", folder / "tiny")
        shutil.copy(SHIPPED / "tiny.yaml", folder / "tiny.yaml")
    return load_config(folder / "tiny.yaml", [*outputs(folder), *overrides], environ={})


def outputs(folder: Path) -> list[str]:
    """Overrides that keep every result below `folder`, and leave out step times, which few tests read."""
    return ["validation.costs=false", *(f"output.{n}={folder / n}" for n in ("engines", "model_repo", "reports"))]
