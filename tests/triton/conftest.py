"""Fixtures of the model repository's tests."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from tests.triton.modelfolder import load, small_repository


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository that no test changes."""
    return small_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="session")
def bls(repository: Path) -> dict[str, ModuleType]:
    """The modules of tensorrt_llm_bls."""
    return load(repository / "tensorrt_llm_bls")
