"""Unquantized output, byte for byte, against an independent writer: nvidia-modelopt's TensorRT-LLM export."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.models import Tensors, load
from trtspec.checkpoint.convert import convert

pytestmark = pytest.mark.torch

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 200,
    "max_position_embeddings": 128,
}
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "llama", {}),
    "llama-tied": ("LlamaConfig", "llama", {"tie_word_embeddings": True}),
    "mistral": ("MistralConfig", "llama", {}),
    # As many experts as ranks at least: with fewer, modelopt adds rows of zeros to every down projection.
    "mixtral": ("MixtralConfig", "llama", {"num_local_experts": 8}),
    "qwen2": ("Qwen2Config", "qwen", {"head_dim": 8}),
    "qwen3": ("Qwen3Config", "qwen", {}),
    "gemma": ("GemmaConfig", "gemma", {}),
}
Export = Callable[[Any, str, Path, int, int], list[Tensors]]


@pytest.fixture(scope="module")
def export() -> Export:
    """Write a model with modelopt; the tensors of each rank."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    exporter = pytest.importorskip("modelopt.torch.export", reason="nvidia-modelopt is not installed")

    def run(model: Any, decoder: str, folder: Path, tensor: int, pipeline: int) -> list[Tensors]:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exporter.export_tensorrt_llm_checkpoint(
                model, decoder, model.dtype, export_dir=folder,
                inference_tensor_parallel=tensor, inference_pipeline_parallel=pipeline,
            )  # fmt: skip
        return [load(folder / f"rank{rank}.safetensors") for rank in range(tensor * pipeline)]

    return run


def make(family: str, dtype: str, **changes: Any) -> Any:
    """A random model; biases and norms too, which transformers starts at 0 and 1."""
    import torch
    import transformers

    name, _, own = FAMILIES[family]
    config = getattr(transformers, name)(**{**SIZES, **own, **changes})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    model.config.architectures = [type(model).__name__]
    return model


def both(
    model: Any, family: str, export: Export, folder: Path, tensor: int, pipeline: int
) -> list[tuple[Tensors, Tensors]]:
    """(ours, theirs) for each rank."""
    model.save_pretrained(folder / "m")
    (folder / "out").mkdir()
    convert(folder / "m", folder / "out", tensor=tensor, pipeline=pipeline)
    theirs = export(model, FAMILIES[family][1], folder / "modelopt", tensor, pipeline)
    return [(load(folder / "out" / f"rank{rank}.safetensors"), held) for rank, held in enumerate(theirs)]


def assert_equal(ours: Tensors, theirs: Tensors) -> None:
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert (ours[name]["dtype"], ours[name]["shape"]) == (tensor["dtype"], tensor["shape"]), name
        assert bytes(ours[name]["data"]) == bytes(tensor["data"]), name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (8, 1)])
def test_tensor_parallel(tmp_path: Path, export: Export, family: str, tensor: int, pipeline: int) -> None:
    for ours, theirs in both(make(family, "bfloat16"), family, export, tmp_path, tensor, pipeline):
        assert_equal(ours, theirs)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "gemma"])
def test_pipeline_parallel(tmp_path: Path, export: Export, family: str) -> None:
    for ours, theirs in both(make(family, "bfloat16"), family, export, tmp_path, 2, 2):
        assert_equal(ours, theirs)


def test_tied_gemma_with_stages_has_a_head_where_modelopt_writes_none(tmp_path: Path, export: Export) -> None:
    pairs = both(make("gemma", "bfloat16"), "gemma", export, tmp_path, 1, 2)
    (first, theirs_first), (last, theirs_last) = pairs
    assert_equal(first, theirs_first)
    assert "lm_head.weight" not in theirs_last
    head = last.pop("lm_head.weight")
    assert bytes(head["data"]) == bytes(first["transformer.vocab_embedding.weight"]["data"])
    assert_equal(last, theirs_last)


@pytest.mark.parametrize("family", ["llama", "gemma"])
def test_padded_vocabulary(tmp_path: Path, export: Export, family: str) -> None:
    for ours, theirs in both(make(family, "bfloat16", vocab_size=1001), family, export, tmp_path, 2, 1):
        assert_equal(ours, theirs)


@pytest.mark.parametrize("family", ["qwen3", "gemma"])
def test_float16(tmp_path: Path, export: Export, family: str) -> None:
    # Not float32: modelopt writes that as float16.
    for ours, theirs in both(make(family, "float16"), family, export, tmp_path, 2, 1):
        assert_equal(ours, theirs)
