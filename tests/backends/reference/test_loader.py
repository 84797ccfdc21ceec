"""What a checkpoint lacks or holds too much is named, family by family."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from tests.backends.reference.families import engine_of, oracle  # noqa: E402
from trtspec.backends.reference.config import EngineFolder, ModelConfig  # noqa: E402
from trtspec.backends.reference.core import Core  # noqa: E402
from trtspec.backends.reference.loader import layer_kinds  # noqa: E402
from trtspec.errors import ModelFileError  # noqa: E402

pytestmark = pytest.mark.torch
LAYER = "transformer.layers.1."


def change(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    file = folder / "rank0.safetensors"
    tensors = load_file(file)
    assert (name in tensors) == (tensor is None)
    tensors.pop(name, None)
    if tensor is not None:
        tensors[name] = tensor
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "mlp.gate.weight"),
        ("qwen2", "attention.qkv.bias"),
        ("qwen3", "attention.k_layernorm.weight"),
        ("gemma2", "pre_feedforward_layernorm.weight"),
        ("gemma3", "post_feedforward_layernorm.weight"),
        ("phi3", "mlp.fc.weight"),
        ("mixtral", "mlp.router.weight"),
        ("qwen3-moe-renormalized", "mlp.proj.weight"),
    ],
)
def test_missing_tensors_are_named(tmp_path: Path, family: str, name: str) -> None:
    folder = engine_of(oracle(family), tmp_path)
    change(folder, LAYER + name, None)
    with pytest.raises(ModelFileError, match=rf"a tensor is missing.*expected {LAYER}{name} \["):
        Core(folder, threads=1)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "attention.q_layernorm.weight"),
        ("mistral", "post_feedforward_layernorm.weight"),
        ("mixtral", "mlp.gate.weight"),
        ("phi3", "mlp.gate.weight"),
    ],
)
def test_tensors_without_a_place_are_named(tmp_path: Path, family: str, name: str) -> None:
    folder = engine_of(oracle(family), tmp_path)
    change(folder, LAYER + name, torch.ones(4))
    with pytest.raises(ModelFileError, match=rf"no place.*found {LAYER}{name}"):
        Core(folder, threads=1)


def test_buffers_of_older_converters_are_ignored(tmp_path: Path) -> None:
    folder = engine_of(oracle("llama"), tmp_path)
    change(folder, "rotary_inv_freq", torch.ones(4))
    Core(folder, threads=1)


def test_a_bias_that_config_json_does_not_mention_is_used(tmp_path: Path) -> None:
    """Some writers leave attn_bias out of a Qwen2 checkpoint."""
    folder = engine_of(oracle("qwen3"), tmp_path)
    rows = EngineFolder.read(folder).model.qkv_rows
    change(folder, LAYER + "attention.qkv.bias", torch.full((rows,), 0.5))
    forward = Core(folder, threads=1).model._forward
    assert forward.products.biases[2] is not None
    assert forward.products.biases[0] is None


def config(**more: object) -> ModelConfig:
    return ModelConfig(3, 32, 4, 2, 8, 48, 50, 1e-5, 512, 500.0, None, False, False, **more)  # type: ignore[arg-type]


def test_kinds_of_layers() -> None:
    assert layer_kinds(config()) == [(None, False)]
    assert layer_kinds(config(windows=(7, 7, 7))) == [(7, False)]
    assert layer_kinds(config(windows=(7, None, 7))) == [(7, False), (None, False)]
    assert layer_kinds(config(windows=(None, 7, 7), local_base=10.0)) == [(None, False), (7, True)]
