"""What trtspec converts and quantizes, read by the stand-in: names, types and shapes of every tensor of every rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.madefamilies import write_family
from tests.contract.made import TARGET, built
from trtspec.checkpoint.convert import convert
from trtspec.config.quantization import Quantization, Weights
from trtspec.workflows.recipe import Recipe

FAMILIES = ("llama", "llama-biased", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3")
WIDE = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 32, "num_hidden_layers": 2}


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (8, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_split(family: str, tensor: int, pipeline: int, tmp_path: Path) -> None:
    write_family(tmp_path / "hf", family, "BF16", torch_dtype="bfloat16")
    (tmp_path / "checkpoint").mkdir()
    convert(tmp_path / "hf", tmp_path / "checkpoint", tensor=tensor, pipeline=pipeline)
    built(tmp_path, [*TARGET, "--workers", str(tensor * pipeline)])
    assert len(list((tmp_path / "engine").glob("rank*.engine"))) == tensor * pipeline


@pytest.mark.parametrize("tensor", [1, 2])
@pytest.mark.parametrize("weights", ["fp8_pc_pt", "int8_wo", "int4_wo", "int4_rtn"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_formats_that_need_no_calibration(family: str, weights: Weights, tensor: int, tmp_path: Path) -> None:
    write_family(tmp_path / "hf", family, "BF16", torch_dtype="bfloat16", **WIDE)
    (tmp_path / "checkpoint").mkdir()
    recipe = Recipe(tmp_path / "hf", Quantization(weights=weights), tmp_path / "calibration", tensor=tensor)
    recipe.write(tmp_path / "checkpoint", strict=True, progress=None)
    built(tmp_path, TARGET)
