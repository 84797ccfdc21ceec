"""Every family in the formats, also those that modelopt cannot export: calibrated layer by layer, written, held
against the source element by element."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.checkpoint.quantize import families
from tests.checkpoint.quantize.conftest import Oracle, token_prompts, write_quantized
from trtspec.checkpoint.compare import Comparison
from trtspec.checkpoint.jsonfile import read_object
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.quantize import layerwise
from trtspec.checkpoint.quantize.calibration import write_about
from trtspec.checkpoint.readback import Checkpoint
from trtspec.errors import ConfigError

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """made(family): the model folder with its calibration in `calibration`."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    @cache
    def model(family: str) -> Path:
        folder = families.write(tmp_path_factory.mktemp(family) / "model", family)
        out = folder.parent / "calibration"
        out.mkdir()
        layerwise.calibrate(folder, token_prompts(2, 20, 100), out)
        write_about(out, method="layerwise")
        return folder

    return model


def faults(model: Path, checkpoint: Path) -> list[str]:
    return [f"{c.name}: {c.outcome} {c.why}" for c in Comparison.open(model, checkpoint).tensors() if not c.good]


@pytest.mark.parametrize("family", families.CONFIGS)
def test_fp8_with_a_calibrated_cache_at_two_by_two(made: Oracle, tmp_path: Path, family: str) -> None:
    model = made(family)
    out = write_quantized(model, tmp_path / "out", "fp8", "fp8", 2, 2, calibration=model.parent / "calibration")
    assert faults(model, out) == []
    checkpoint = Checkpoint.open(out)
    for layer in range(3):
        for linear in ("attention.qkv", "mlp.proj"):
            quant = checkpoint.activation(f"transformer.layers.{layer}.{linear}")
            assert quant is not None
            assert quant.scale is not None
            assert 0 < quant.scale < 1
        assert checkpoint.kv_scale(layer) == 1.0
    plain = plan_conversion(model, tensor=2, pipeline=2).config
    written = read_object(out / "config.json")
    assert {k: v for k, v in written.items() if k not in ("quantization", "producer")} == {
        k: v for k, v in plain.items() if k != "quantization"
    }


@pytest.mark.parametrize("family", [f for f in families.CONFIGS if f not in families.MIXTURES])
@pytest.mark.parametrize("weights", ["fp8_pc_pt", "int4_rtn", "nvfp4", "int8_sq"])
def test_other_formats(made: Oracle, tmp_path: Path, family: str, weights: str) -> None:
    model = made(family)
    needs = weights in ("nvfp4", "int8_sq")
    calibration = model.parent / "calibration" if needs else None
    out = write_quantized(model, tmp_path / "out", weights, tp=2, group=64, calibration=calibration)
    assert faults(model, out) == []


@pytest.mark.parametrize("family", families.MIXTURES)
@pytest.mark.parametrize("weights", ["fp8_pc_pt", "int4_rtn", "nvfp4"])
def test_experts_in_formats_without_a_known_layout_are_refused(made: Oracle, family: str, weights: str) -> None:
    model = made(family)
    with pytest.raises(ConfigError, match=f"experts cannot be stored as {weights}"):
        write_quantized(model, model.parent / "never", weights, calibration=model.parent / "calibration")


@pytest.mark.parametrize("weights", ["int8_wo", "int4_wo"])
def test_late_formats_are_plain_weights_with_a_name(made: Oracle, tmp_path: Path, weights: str) -> None:
    model = made("mixtral")
    out = write_quantized(model, tmp_path / "out", weights, tp=2)
    plain = write_quantized(model, tmp_path / "plain", "none", tp=2)
    for rank in ("rank0.safetensors", "rank1.safetensors"):
        assert (out / rank).read_bytes() == (plain / rank).read_bytes()
    block = read_object(out / "config.json")["quantization"]
    assert block["quant_algo"] == {"int8_wo": "W8A16", "int4_wo": "W4A16"}[weights]
    assert "*router" in block["exclude_modules"]


def test_a_tied_gemma_keeps_its_head_on_the_last_stage(made: Oracle, tmp_path: Path) -> None:
    """modelopt's export of it has no head there at all."""
    model = made("gemma")
    out = write_quantized(model, tmp_path / "out", "fp8", tp=1, pp=3, calibration=model.parent / "calibration")
    checkpoint = Checkpoint.open(out)
    assert "lm_head.weight" in checkpoint.names
    assert read_object(out / "config.json")["share_embedding_table"] is False
    assert (checkpoint.tensor("lm_head.weight") == checkpoint.tensor("transformer.vocab_embedding.weight")).all()
