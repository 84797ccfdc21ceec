"""Which builder a configuration gets, and that its key tells engines apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trtspec.backends import builder_for
from trtspec.config import RunConfig


def config(backend: str, **engine: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "x",
            "pair": {"target": {"path": Path("t")}, "draft": {"path": Path("d")}},
            "engine": {"backend": backend, **engine},
        }
    )


@pytest.mark.parametrize("backend", ["reference", "tensorrt", "pytorch"])
def test_builder_is_the_named_one(backend: str) -> None:
    assert builder_for(config(backend)).name == backend


@pytest.mark.parametrize("backend", ["reference", "tensorrt", "pytorch"])
def test_key_facts_change_with_what_the_engine_depends_on(backend: str) -> None:
    def facts(role: str = "target", **engine: object) -> object:
        wanted = config(backend, **engine)
        return builder_for(wanted).key_facts(wanted, role)  # type: ignore[arg-type]

    assert facts() == facts()
    assert facts() != facts(max_batch_size=3)
    assert facts() != facts("draft")


def test_backends_import_without_torch() -> None:
    code = (
        "import sys, trtspec.backends, trtspec.backends.reference, trtspec.backends.reference.builder\n"
        "print(sorted({'torch', 'transformers', 'tritonclient'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
