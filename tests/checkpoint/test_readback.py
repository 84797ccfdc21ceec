"""Checkpoints opened and read back: numbering, late formats, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.madefamilies import write_family
from tests.checkpoint.models import load, save
from trtspec.checkpoint.codecs import decode
from trtspec.checkpoint.convert import convert, write_checkpoint
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.quantize.plan import quantized
from trtspec.checkpoint.readback import Checkpoint
from trtspec.errors import ModelFileError

FC = "transformer.layers.0.mlp.fc.weight"


def written(tmp_path: Path, weights: str = "none", family: str = "llama", **split: int) -> tuple[Path, dict[str, Any]]:
    """A checkpoint of a small model, and the source's float32 values."""
    values = write_family(tmp_path / "model", family, "F16", **{"hidden_size": 64, "intermediate_size": 64})
    out = tmp_path / "out"
    out.mkdir()
    write_checkpoint(quantized(plan_conversion(tmp_path / "model", **split), weights, group_size=64), out)
    return out, {name: value.astype(np.float16).astype(np.float32) for name, value in values.items()}


def edit(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 2), (8, 1), (1, 3)])
def test_every_tensor_of_an_unquantized_one_is_the_sources(tmp_path: Path, tensor: int, pipeline: int) -> None:
    out, source = written(tmp_path, tensor=tensor, pipeline=pipeline)
    checkpoint = Checkpoint.open(out)
    for layer in range(3):
        prefix = f"model.layers.{layer}."
        qkv = np.concatenate([source[f"{prefix}self_attn.{p}_proj.weight"] for p in "qkv"])
        assert np.array_equal(checkpoint.tensor(f"transformer.layers.{layer}.attention.qkv.weight"), qkv)
        down = source[f"{prefix}mlp.down_proj.weight"]
        assert np.array_equal(checkpoint.tensor(f"transformer.layers.{layer}.mlp.proj.weight"), down)
    assert np.array_equal(checkpoint.tensor("lm_head.weight"), source["lm_head.weight"])
    assert checkpoint.activation("transformer.layers.0.mlp.fc") is None
    assert checkpoint.kv_scale(0) is None
    assert set(checkpoint.weights) == set(checkpoint.names)


@pytest.mark.parametrize(("weights", "bits"), [("int8_wo", 8), ("int4_wo", 4)])
def test_late_formats_run_as_the_engine_builder_rounds_them(tmp_path: Path, weights: str, bits: int) -> None:
    out, source = written(tmp_path, weights)
    checkpoint = Checkpoint.open(out)
    plain = source["model.layers.0.mlp.gate_proj.weight"]
    assert np.array_equal(checkpoint.tensor(FC), plain)
    found, top = checkpoint.executed(FC), 2 ** (bits - 1)
    for row, wanted in zip(plain, found, strict=True):  # C's loop, spelled out
        scale = np.float32(np.abs(row).max() / np.float32(top))
        codes = [max(-top, min(top - 1, int(np.floor(abs(w) / scale + 0.5) * np.sign(w)))) for w in row]
        assert np.allclose(np.array(codes) * np.float32(np.float16(scale)), wanted, rtol=1e-6)
    assert np.array_equal(checkpoint.executed("lm_head.weight"), source["lm_head.weight"])
    assert checkpoint.activation("transformer.layers.0.mlp.fc") is None


def test_plain_weights_run_as_they_are(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(written(tmp_path)[0])
    assert np.array_equal(checkpoint.executed(FC), checkpoint.tensor(FC))


def test_int4_codes_and_scales(tmp_path: Path) -> None:
    out, source = written(tmp_path, "int4_rtn", tensor=1)
    held = Checkpoint.open(out).stored(FC)
    plain = source["model.layers.0.mlp.gate_proj.weight"]
    scale = held.scale("weights_scaling_factor")
    assert scale is not None
    assert np.array_equal(scale[:, 0], np.abs(plain).max(1) / np.float32(7))
    assert held.dtype == "I8"
    assert held.codes.shape == (32, 64)
    low = (held.codes[0].view(np.uint8) & 15).astype(np.int8)
    assert np.array_equal(np.where(low > 7, low - 16, low), np.rint(plain[0] / scale[0, 0]))


def test_fp8_stored_as_integers_of_its_width_is_read(tmp_path: Path) -> None:
    """Older writers name the type I8."""
    out, _ = written(tmp_path, "fp8_pc_pt")
    wanted = Checkpoint.open(out).tensor(FC)
    tensors = load(out / "rank0.safetensors")
    for tensor in tensors.values():
        if tensor["dtype"] == "F8_E4M3":
            tensor["dtype"] = "I8"
    save(out / "rank0.safetensors", tensors)
    assert np.array_equal(Checkpoint.open(out).tensor(FC), wanted)


def test_a_cache_without_scales_runs_with_one(tmp_path: Path) -> None:
    out, _ = written(tmp_path)
    edit(out, quantization={"quant_algo": None, "kv_cache_quant_algo": "FP8"})
    assert Checkpoint.open(out).kv_scale(0) == 1.0


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    out, _ = written(tmp_path, tensor=2)
    (out / "rank1.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"rank1\.safetensors"):
        Checkpoint.open(out)


def test_missing_layers_are_counted(tmp_path: Path) -> None:
    out, _ = written(tmp_path)
    edit(out, num_hidden_layers=4)
    with pytest.raises(ModelFileError, match=r"layers are missing.*3 in the files.*4 by"):
        Checkpoint.open(out)


def test_a_tensor_that_one_rank_lacks(tmp_path: Path) -> None:
    out, _ = written(tmp_path, tensor=2)
    tensors = load(out / "rank1.safetensors")
    del tensors[FC]
    save(out / "rank1.safetensors", tensors)
    with pytest.raises(ModelFileError, match=r"mlp\.fc.*not on every rank"):
        Checkpoint.open(out)


def test_ranks_that_disagree(tmp_path: Path) -> None:
    out, _ = written(tmp_path, tensor=2)
    tensors = load(out / "rank1.safetensors")
    tensors["transformer.ln_f.weight"]["data"] = bytes(128)
    save(out / "rank1.safetensors", tensors)
    with pytest.raises(ModelFileError, match="copies differ"):
        Checkpoint.open(out).tensor("transformer.ln_f.weight")


def test_codes_that_config_does_not_explain(tmp_path: Path) -> None:
    out, _ = written(tmp_path, "int4_rtn")
    edit(out, quantization={"quant_algo": "W8A16", "kv_cache_quant_algo": None})
    with pytest.raises(ModelFileError, match="codes that nothing here explains"):
        Checkpoint.open(out).tensor(FC)


def test_an_algorithm_outside_the_table(tmp_path: Path) -> None:
    out, _ = written(tmp_path)
    edit(out, quantization={"quant_algo": "W4A8_QSERVE_PER_GROUP"})
    with pytest.raises(ModelFileError, match="W4A8_QSERVE_PER_GROUP"):
        Checkpoint.open(out).tensor(FC)


def test_a_file_that_shrank(tmp_path: Path) -> None:
    out, _ = written(tmp_path)
    checkpoint = Checkpoint.open(out)
    with (out / "rank0.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelFileError, match="ended inside"):
        checkpoint.tensor("lm_head.weight")


def test_bfloat16_is_read(tmp_path: Path) -> None:
    values = write_family(tmp_path / "model", "gemma", "BF16")
    out = tmp_path / "out"
    out.mkdir()
    convert(tmp_path / "model", out, tensor=2)
    name = "model.layers.1.mlp.down_proj.weight"
    wanted = decode((values[name].view("<u4") >> 16).astype("<u2"), "BF16")
    assert np.array_equal(Checkpoint.open(out).tensor("transformer.layers.1.mlp.proj.weight"), wanted)


def test_a_scale_of_inputs_is_never_invented(tmp_path: Path) -> None:
    out, _ = written(tmp_path, "fp8_pc_pt")
    edit(out, quantization={"quant_algo": "FP8", "kv_cache_quant_algo": None})
    with pytest.raises(ModelFileError, match=r"mlp\.fc\.activation_scaling_factor is absent"):
        Checkpoint.open(out).activation("transformer.layers.0.mlp.fc")
