"""Plans of quantized checkpoints: what is refused before a byte is written, and how scales are set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.madefamilies import write_family
from tests.checkpoint.models import load, save
from tests.checkpoint.quantize.conftest import write_quantized
from tests.checkpoint.quantize.made import calibration
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.quantize.calibration import Calibration, Promised
from trtspec.checkpoint.quantize.plan import quantized
from trtspec.checkpoint.readback import Checkpoint
from trtspec.errors import ConfigError, ModelFileError

SIZES = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, "num_attention_heads": 8}


def model(tmp_path: Path, family: str = "llama", stored: str = "BF16", **changes: Any) -> Path:
    write_family(tmp_path / "model", family, stored, **{**SIZES, **changes})
    return tmp_path / "model"


def seen(tmp_path: Path, k: float = 1.0, v: float = 1.0) -> Calibration:
    """A calibration in which every linear saw 3.5 at most."""
    kinds = [f"self_attn.{p}_proj" for p in "qkvo"] + [f"mlp.{p}_proj" for p in ("gate", "up", "down")]
    tensors: dict[str, Any] = {}
    for layer in range(3):
        for kind in kinds:
            tensors[f"model.layers.{layer}.{kind}.input_amax"] = [3.5]
        tensors |= {f"model.layers.{layer}.self_attn.{c}_amax": [a] for c, a in (("k", k), ("v", v))}
    return calibration(tmp_path / "calibration", tensors)


@pytest.mark.parametrize(("weights", "kv"), [("fp8", "auto"), ("nvfp4", "auto"), ("int4_awq", "auto"), ("none", "fp8")])
def test_a_scale_is_never_invented(tmp_path: Path, weights: str, kv: str) -> None:
    with pytest.raises(ConfigError, match=r"static scales.*fp8_pc_pt, int8_wo, int4_wo, int4_rtn"):
        quantized(plan_conversion(model(tmp_path)), weights, kv)


def test_nothing_is_quantized_twice(tmp_path: Path) -> None:
    once = quantized(plan_conversion(model(tmp_path)), "fp8_pc_pt")
    with pytest.raises(ConfigError, match=r"quantized already"):
        quantized(once, "fp8_pc_pt")


def test_columns_that_no_group_divides_name_what_would(tmp_path: Path) -> None:
    folder = model(tmp_path, hidden_size=128, intermediate_size=192)
    with pytest.raises(
        ConfigError, match=r"64 columns of .*dense.*2 ranks.*tensor 1; group_size 64 .*tensor 1 or 2; fp8"
    ):
        quantized(plan_conversion(folder, tensor=2), "int4_rtn")
    assert quantized(plan_conversion(folder), "int4_rtn", group_size=64).config["quantization"]["group_size"] == 64


def test_rows_that_cannot_be_paired(tmp_path: Path) -> None:
    folder = model(tmp_path, intermediate_size=64 * 9, num_attention_heads=9, num_key_value_heads=9)
    tensors = plan_conversion(folder, tensor=9)
    with pytest.raises(ConfigError, match=r"no multiple of the group|packed in pairs"):
        quantized(tensors, "int4_rtn", group_size=64)


@pytest.mark.parametrize(("weights", "why"), [("int8_wo", "16-bit weights"), ("int4_awq", "inputs in 16 bits")])
def test_float32_models_need_a_type(tmp_path: Path, weights: str, why: str) -> None:
    folder = model(tmp_path, "llama", "F32")
    with pytest.raises(ConfigError, match=f"{why}.*dtype"):
        quantized(plan_conversion(folder), weights, calibration=Promised(tmp_path, {}, {}), group_size=64)


@pytest.mark.parametrize(("kv", "k", "v", "wanted"), [
    ("fp8", 1.26, 1.43, (1.0, 1.0, 1.0)),  # raised to 1
    ("fp8", 896.0, 448.0, (2.0, 1.0, 2.0)),
    ("int8", 254.0, 12.7, (2.0, 0.1, 2.0)),  # not raised: an INT8 cache has no relative precision
])  # fmt: skip
def test_scales_of_the_cache(tmp_path: Path, kv: str, k: float, v: float, wanted: tuple[float, float, float]) -> None:
    plan = quantized(plan_conversion(model(tmp_path)), "none", kv, calibration=seen(tmp_path, k, v))
    from trtspec.checkpoint.convert import write_checkpoint

    out = tmp_path / "out"
    out.mkdir()
    write_checkpoint(plan, out)
    checkpoint = Checkpoint.open(out)
    names = [f"transformer.layers.1.attention.{kind}_cache_scaling_factor" for kind in ("k", "v", "kv")]
    assert np.allclose([checkpoint.tensor(name)[0] for name in names], wanted)
    assert checkpoint.kv_scale(1) == pytest.approx(wanted[2])
    assert any("exceed half" in line for line in plan.warnings) == (kv == "fp8" and k > 224)
    assert checkpoint.quantization["kv_cache_quant_algo"] == kv.upper()


def test_fused_and_neighbouring_matrices_share_a_scale(tmp_path: Path) -> None:
    folder = model(tmp_path)
    tensors = load(folder / "model.safetensors")
    large = np.zeros((4 * 16, 64), np.float32)
    large[3, 5] = 60.0
    for name, part in (("self_attn.v_proj", large), ("mlp.up_proj", np.repeat(large, 2, axis=0))):
        data = (part.view("<u4") >> 16).astype("<u2").tobytes()
        tensors[f"model.layers.0.{name}.weight"]["data"] = data
    save(folder / "model.safetensors", tensors)
    seen(tmp_path)
    out = write_quantized(folder, tmp_path / "out", "fp8", tp=2, calibration=tmp_path / "calibration")
    checkpoint = Checkpoint.open(out)
    for name in ("attention.qkv", "mlp.fc", "mlp.gate"):
        scale = checkpoint.stored(f"transformer.layers.0.{name}.weight").scale("weights_scaling_factor")
        assert scale is not None
        assert scale[0] == np.float32(60) / np.float32(448)
        assert checkpoint.activation(f"transformer.layers.0.{name}").scale == np.float32(3.5) / np.float32(448)  # type: ignore[union-attr]


def test_a_matrix_of_zeros_has_scale_one(tmp_path: Path) -> None:
    folder = model(tmp_path)
    tensors = load(folder / "model.safetensors")
    held = tensors["model.layers.0.mlp.down_proj.weight"]
    held["data"] = bytes(len(held["data"]))
    save(folder / "model.safetensors", tensors)
    seen(tmp_path)
    for weights in ("fp8", "fp8_pc_pt", "int4_rtn", "nvfp4", "int8_sq"):
        out = write_quantized(folder, tmp_path / weights, weights, group=64, calibration=tmp_path / "calibration")
        assert not Checkpoint.open(out).tensor("transformer.layers.0.mlp.proj.weight").any()


@pytest.mark.parametrize("weights", ["fp8", "fp8_pc_pt", "int4_rtn", "nvfp4"])
def test_weights_that_are_not_finite_have_no_scale(tmp_path: Path, weights: str) -> None:
    folder = model(tmp_path)
    tensors = load(folder / "model.safetensors")
    held = tensors["model.layers.2.mlp.up_proj.weight"]
    held["data"] = bytes(held["data"][:-2]) + b"\xc0\x7f"
    save(folder / "model.safetensors", tensors)
    seen(tmp_path)
    out = tmp_path / "out"
    with pytest.raises(ModelFileError, match=r"layers\.2\.mlp\.(gate|fc).*NaN"):
        write_quantized(folder, out, weights, group=64, calibration=tmp_path / "calibration")
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_every_stored_type_is_quantized_from_its_own_values(tmp_path: Path, stored: str) -> None:
    """The table of codes for 16-bit weights and the arithmetic for others agree."""
    folder = model(tmp_path, "llama", stored)
    seen(tmp_path)
    out = write_quantized(folder, tmp_path / "out", "fp8", calibration=tmp_path / "calibration", dtype="bfloat16")
    from trtspec.checkpoint.codecs import decode, encode_e4m3

    kinds = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    raw = load(folder / "model.safetensors")["model.layers.1.self_attn.o_proj.weight"]
    plain = decode(np.frombuffer(bytes(raw["data"]), kinds[stored]).reshape(raw["shape"]), stored)
    held = Checkpoint.open(out).stored("transformer.layers.1.attention.dense.weight")
    scale = np.abs(plain).max() / np.float32(448)
    assert np.array_equal(held.codes, encode_e4m3(plain / scale))
    assert held.scale("weights_scaling_factor") == scale
