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


QUANTIZED = {"quantization": {"weights": "fp8"}}
CACHED = {"quantization": {"kv_cache": "int8"}}


@pytest.mark.parametrize("target", [QUANTIZED, CACHED])
@pytest.mark.parametrize(("dtype", "accepted"), [("auto", True), ("float32", True), ("bfloat16", False)])
def test_quantized_models_are_emulated_in_float32(
    target: dict[str, Any], dtype: str, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0")
    settings = config({"compute_dtype": dtype}, **target)
    if accepted:
        ReferenceBuilder().require(settings)
        facts: Any = ReferenceBuilder().key_facts(settings, "target")
        assert facts["reference"]["compute_dtype"] == "float32"
        other: Any = ReferenceBuilder().key_facts(settings, "draft")
        assert other["reference"]["compute_dtype"] == ("bfloat16" if dtype == "auto" else dtype)
        return
    with pytest.raises(ConfigError, match=r"pair\.target\.quantization.*auto or float32"):
        ReferenceBuilder().require(settings)


def test_parallel_checkpoints_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0")
    ReferenceBuilder().require(config(parallelism={"tensor": 2, "pipeline": 2}))


def rewrite(checkpoint: Path, **changes: Any) -> None:
    (checkpoint / "config.json").write_text(json.dumps(MODEL | changes))


def test_the_checkpoint_decides_what_is_emulated(checkpoint: Path, out: Path) -> None:
    rewrite(checkpoint, quantization={"quant_algo": "FP8", "kv_cache_quant_algo": None})
    with pytest.raises(ConfigError, match=r"FP8 with engine\.compute_dtype bfloat16"):
        ReferenceBuilder().build(config({"compute_dtype": "bfloat16"}), "target", checkpoint, out)
    assert not list(out.iterdir())
    ReferenceBuilder().build(config(), "target", checkpoint, out)
    assert EngineFolder.read(out).compute_dtype == "float32"


def test_every_rank_is_linked(checkpoint: Path, out: Path) -> None:
    rewrite(checkpoint, mapping={"world_size": 4, "tp_size": 2, "pp_size": 2})
    for rank in (1, 2):
        (checkpoint / f"rank{rank}.safetensors").write_bytes(b"weights")
    with pytest.raises(ModelFileError, match=r"no such file.*rank3\.safetensors|rank3\.safetensors.*no such file"):
        ReferenceBuilder().build(config(), "target", checkpoint, out)
    assert not list(out.iterdir()), "nothing is linked before all are there"
    (checkpoint / "rank3.safetensors").write_bytes(b"weights")
    ReferenceBuilder().build(config(), "target", checkpoint, out)
    assert sorted(p.name for p in out.glob("rank*")) == [f"rank{rank}.safetensors" for rank in range(4)]


@pytest.mark.parametrize(
    ("scaling", "limit"),
    [
        ({"rope_type": "yarn", "factor": 2.0}, 4096),
        ({"rope_type": "dynamic", "factor": 1.5, "original_max_position_embeddings": 2048}, 3072),
        ({"rope_type": "llama3", "factor": 8.0}, 2048),
        ({"rope_type": "longrope", "factor": 8.0, "original_max_position_embeddings": 256}, 2048),
    ],
)
def test_stretched_rope_allows_longer_sequences(
    checkpoint: Path, out: Path, scaling: dict[str, Any], limit: int
) -> None:
    rewrite(checkpoint, rotary_scaling=scaling)
    with pytest.raises(ConfigError, match=f"expected at most {limit}"):
        ReferenceBuilder().build(config({"max_seq_len": limit + 1}), "target", checkpoint, out)
    ReferenceBuilder().build(config({"max_seq_len": limit}), "target", checkpoint, out)
