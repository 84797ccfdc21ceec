"""One target and one draft, opened once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def target_model() -> Any:
    """The oracle of the target."""
    from tests.backends.reference.models import oracle

    return oracle(1)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory, target_model: Any) -> dict[str, Path]:
    """Engine folders: `target`, `draft` (smaller, other weights), `near` (the target, slightly disturbed)."""
    import torch

    from tests.backends.reference.models import engine_folder, oracle

    root = tmp_path_factory.mktemp("engines")
    near = oracle(1)
    with torch.no_grad():
        near.lm_head.weight += 0.15 * torch.randn(near.lm_head.weight.shape)
    return {
        "target": engine_folder(root / "target", target_model),
        "draft": engine_folder(root / "draft", oracle(2, num_hidden_layers=1), max_draft_len=0),
        "near": engine_folder(root / "near", near, max_draft_len=0),
    }


@pytest.fixture
def engine(folders: dict[str, Path]) -> Iterator[Any]:
    """A fresh engine on the target."""
    from trtspec.backends.reference import open_engine

    with open_engine(folders["target"], threads=1) as opened:
        yield opened
