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


def read_all(folder: EngineFolder) -> list[Any]:
    with open_weights(folder.weights, folder.model) as file:
        return [file.embedding(), file.final_norm(), file.lm_head(), *(file.layer(i) for i in range(3))]


def rewrite(folder: EngineFolder, **changes: Any) -> None:
    found = load_file(folder.weights) | changes
    save_file({name: tensor for name, tensor in found.items() if tensor is not None}, folder.weights)


def test_a_good_file(folder: EngineFolder) -> None:
    layer = read_all(folder)[-1]
    assert layer.qkv.shape == (64, 32)
    assert layer.qkv_bias.shape == (64,)
    assert layer.fc_bias is None


def test_tied_models_read_the_embedding_as_head(tmp_path: Path) -> None:
    folder = EngineFolder.read(engine_folder(tmp_path / "e", oracle(0, tie_word_embeddings=True)))
    embedding, _, head, *_ = read_all(folder)
    assert torch.equal(embedding, head)


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
        read_all(folder)


def test_a_truncated_file(folder: EngineFolder) -> None:
    data = folder.weights.read_bytes()
    folder.weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelFileError, match="not a readable safetensors file"):
        read_all(folder)


def test_no_file(folder: EngineFolder) -> None:
    folder.weights.unlink()
    with pytest.raises(ModelFileError, match="no such file"):
        read_all(folder)
