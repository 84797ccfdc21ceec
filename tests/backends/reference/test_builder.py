"""The engine folder that the builder writes."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

import pytest

from trtspec.backends.reference.builder import ReferenceBuilder
from trtspec.backends.reference.config import EngineFolder
from trtspec.config import RunConfig
from trtspec.errors import ConfigError, MissingError, ModelFileError

MODEL = {
    "architecture": "LlamaForCausalLM",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 2048,
}


def config(engine: dict[str, Any] | None = None, **target: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "x",
            "pair": {"target": {"path": Path("t"), **target}, "draft": {"path": Path("d")}},
            "speculation": {"max_draft_len": 6},
            "engine": {"max_batch_size": 3, "max_input_len": 100, "max_seq_len": 200, **(engine or {})},
        }
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    (folder / "rank0.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    folder.mkdir()
    return folder


def test_target_limits_hold_the_drafts(checkpoint: Path, out: Path) -> None:
    ReferenceBuilder().build(config(), "target", checkpoint, out)
    document = json.loads((out / "config.json").read_text())
    build = document["build_config"]
    assert document["pretrained_config"] == MODEL
    assert (build["max_seq_len"], build["max_draft_len"], build["speculative_decoding_mode"]) == (206, 6, 2)
    assert build["max_beam_width"] == 1
    assert build["plugin_config"]["use_paged_context_fmha"] is True
    assert document["reference"]["compute_dtype"] == "bfloat16"


def test_draft_takes_no_drafts_and_whole_sequences_as_input(checkpoint: Path, out: Path) -> None:
    ReferenceBuilder().build(config({"compute_dtype": "float32"}), "draft", checkpoint, out)
    folder = EngineFolder.read(out)
    assert (folder.max_seq_len, folder.max_draft_len, folder.compute_dtype) == (200, 0, "float32")
    # Every round of a stateless loop sends all tokens so far: the input may grow up to the sequence's limit.
    assert (folder.max_input_len, folder.max_prompt_len) == (199, 100)
    assert folder.draft_window == 7
    assert folder.cache_slots == 6


def test_weights_are_linked_not_copied(checkpoint: Path, out: Path) -> None:
    ReferenceBuilder().build(config(), "target", checkpoint, out)
    assert (out / "rank0.safetensors").samefile(checkpoint / "rank0.safetensors")


def test_weights_are_copied_across_file_systems(checkpoint: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    ReferenceBuilder().build(config(), "target", checkpoint, out)
    assert (out / "rank0.safetensors").read_bytes() == b"weights"
    assert not (out / "rank0.safetensors").samefile(checkpoint / "rank0.safetensors")


def test_more_positions_than_the_model_knows(checkpoint: Path, out: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.max_seq_len.*expected at most 2048"):
        ReferenceBuilder().build(config({"max_seq_len": 2049}), "target", checkpoint, out)
    assert not list(out.iterdir())


def test_missing_weights(checkpoint: Path, out: Path) -> None:
    (checkpoint / "rank0.safetensors").unlink()
    with pytest.raises(ModelFileError, match="no such file"):
        ReferenceBuilder().build(config(), "target", checkpoint, out)
    assert not list(out.iterdir())


@pytest.mark.parametrize("found", [None, "2.5.1", "2.14.0", "3.0.0"])
def test_require_names_the_torch_it_needs(found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(MissingError, match=r"trtspec\[local\]"):
        ReferenceBuilder().require(config())


@pytest.mark.parametrize("found", ["2.6.0", "2.13.0+cpu"])
def test_require_accepts_known_torches(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: found)
    ReferenceBuilder().require(config())


@pytest.mark.parametrize(
    "target",
    [{"quantization": {"weights": "fp8"}}, {"quantization": {"kv_cache": "int8"}}, {"parallelism": {"tensor": 2}}],
)
def test_require_refuses_what_it_cannot_run(target: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0")
    with pytest.raises(ConfigError, match=r"pair\.target\."):
        ReferenceBuilder().require(config(**target))
