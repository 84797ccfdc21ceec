"""A weight file is checked tensor by tensor against config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from tests.backends.reference.models import engine_folder, oracle  # noqa: E402
from trtspec.backends.reference.config import EngineFolder  # noqa: E402
from trtspec.backends.reference.weights import open_weights  # noqa: E402
from trtspec.errors import ModelFileError  # noqa: E402

pytestmark = pytest.mark.torch
QKV = "transformer.layers.1.attention.qkv.weight"


@pytest.fixture
def folder(tmp_path: Path) -> EngineFolder:
    return EngineFolder.read(engine_folder(tmp_path / "e", oracle(0, attention_bias=True)))


def read(folder: EngineFolder) -> torch.Tensor:
    with open_weights(folder.path, folder.model) as weights:
        return weights.get(QKV, 64, 32)


def file_of(folder: EngineFolder) -> Path:
    return folder.path / "rank0.safetensors"


def rewrite(folder: EngineFolder, **changes: Any) -> None:
    found = load_file(file_of(folder)) | changes
    save_file({name: tensor for name, tensor in found.items() if tensor is not None}, file_of(folder))


def test_a_good_file(folder: EngineFolder) -> None:
    with open_weights(folder.path, folder.model) as weights:
        assert weights.get(QKV, 64, 32).dtype == torch.float32
        assert weights.has("lm_head.weight")
        bias = weights.optional(QKV.replace("weight", "bias"), 64)
        assert bias is not None
        assert bias.shape == (64,)
        assert weights.optional("transformer.layers.1.mlp.fc.bias", 48) is None
        assert weights.tensors.inputs("transformer.layers.1.attention.qkv") is None
        assert weights.tensors.cache_scale(1) == 1.0


def test_a_needed_bias_must_be_there(folder: EngineFolder) -> None:
    with (
        open_weights(folder.path, folder.model) as weights,
        pytest.raises(ModelFileError, match=r"missing.*mlp\.fc\.bias \[48\]"),
    ):
        weights.optional("transformer.layers.1.mlp.fc.bias", 48, needed=True)


def test_what_nobody_asked_for_is_named(folder: EngineFolder) -> None:
    with open_weights(folder.path, folder.model) as weights:
        for name in sorted(weights.tensors.names):
            if name != QKV:
                weights.get(name, *weights.tensors.get(name).shape)
        with pytest.raises(ModelFileError, match=rf"no place.*found {QKV}\b"):
            weights.finish()
        weights.get(QKV, 64, 32)
        weights.finish()


def test_types_stay_as_they_are_stored(folder: EngineFolder) -> None:
    rewrite(folder, **{QKV: torch.ones(64, 32, dtype=torch.bfloat16)})
    assert read(folder).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, r"missing.*expected transformer.layers.1.attention.qkv.weight \[64, 32\]"),
        (torch.zeros(63, 32), r"found \[63, 32\].*expected \[64, 32\]"),
        (torch.zeros(64, 32, dtype=torch.int8), "not a plain float tensor"),
        (torch.full((64, 32), float("nan")), r"qkv.weight holds NaN or infinity \(found 2048 of 2048 values"),
    ],
)
def test_tensors_that_do_not_fit(folder: EngineFolder, change: Any, words: str) -> None:
    rewrite(folder, **{QKV: change})
    with pytest.raises(ModelFileError, match=words):
        read(folder)


def test_a_truncated_file(folder: EngineFolder) -> None:
    data = file_of(folder).read_bytes()
    file_of(folder).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelFileError, match="not a readable safetensors file"):
        read(folder)


def test_no_file(folder: EngineFolder) -> None:
    file_of(folder).unlink()
    with pytest.raises(ModelFileError, match="no such file"):
        read(folder)
