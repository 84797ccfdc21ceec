"""Fixtures of the model repository's tests."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from tests.triton.modelfolder import load, small_repository

# The first example of a property also loads a model folder, and CI machines are busy.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small repository that no test changes."""
    return small_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="session")
def bls(repository: Path) -> dict[str, ModuleType]:
    """The modules of tensorrt_llm_bls."""
    return load(repository / "tensorrt_llm_bls")
