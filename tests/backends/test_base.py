"""Which builder a configuration gets, and that the two TensorRT-LLM ones refuse honestly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trtspec.backends import builder_for
from trtspec.config import RunConfig
from trtspec.errors import MissingError


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


@pytest.mark.parametrize("backend", ["tensorrt", "pytorch"])
def test_tensorrt_llm_backends_refuse_with_what_is_missing(
    backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    builder = builder_for(config(backend, tensorrt_llm_version="1.2.1"))
    with pytest.raises(MissingError) as caught:
        builder.require(config(backend, tensorrt_llm_version="1.2.1"))
    assert caught.value.exit_code == 3
    assert "no tensorrt_llm package" in str(caught.value)
    assert caught.value.expected == "1.2.1"
    assert "later release" in str(caught.value.fix)
    with pytest.raises(MissingError):
        builder.build(config(backend), "target", tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("backend", ["tensorrt", "pytorch"])
def test_a_complete_machine_is_told_that_the_release_is_not(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(MissingError, match="expected a later release of trtspec"):
        builder_for(config(backend)).require(config(backend))


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
