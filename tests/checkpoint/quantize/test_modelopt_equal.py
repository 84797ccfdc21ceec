"""What is written here against what modelopt writes of the same model with the same prompts, file by file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.models import Tensors, load
from tests.checkpoint.quantize import families
from tests.checkpoint.quantize.conftest import Oracle, calibrate_here, export, write_quantized
from trtspec.checkpoint.jsonfile import read_object
from trtspec.checkpoint.readback import Checkpoint

pytestmark = pytest.mark.torch

EXACT = [
    ("fp8", "fp8", 2, 1), ("fp8", "auto", 8, 1), ("fp8", "auto", 1, 2), ("fp8_pc_pt", "auto", 2, 1),
    ("int4_rtn", "auto", 2, 1), ("nvfp4", "auto", 2, 1), ("nvfp4", "auto", 1, 1),
]  # fmt: skip
SEARCHED = [("int8_sq", "auto", 2, 1), ("int4_awq", "fp8", 2, 2), ("w4a8_awq", "auto", 2, 1)]
VOCABULARY = ("transformer.vocab_embedding.weight", "lm_head.weight")


def pair(
    oracle: Oracle, calibrations: Oracle, llama: Path, out: Path, case: tuple[str, str, int, int]
) -> tuple[Path, Path]:
    weights, kv, tp, pp = case
    needs = weights not in ("fp8_pc_pt", "int4_rtn")
    ours = write_quantized(
        llama, out / "ours", weights, kv, tp, pp, calibration=calibrations(weights, kv) if needs else None
    )
    return ours, oracle(*case)


def files(folder: Path) -> dict[str, Tensors]:
    return {path.name: load(path) for path in sorted(folder.glob("rank*.safetensors"))}


@pytest.mark.parametrize("case", EXACT, ids=str)
def test_codes_and_scales_are_bit_equal(
    oracle: Oracle, calibrations: Oracle, llama: Path, tmp_path: Path, case: tuple[str, str, int, int]
) -> None:
    ours, theirs = (files(folder) for folder in pair(oracle, calibrations, llama, tmp_path, case))
    assert set(ours) == set(theirs)
    for file, tensors in ours.items():
        assert set(tensors) == set(theirs[file])
        for name, tensor in tensors.items():
            if name in VOCABULARY:  # modelopt pads it to a multiple of 64 for the four-bit formats
                wanted = theirs[file][name]["data"]
                assert case[0] in ("int4_rtn", "nvfp4") or tensor["data"] == wanted
                continue
            assert tensor == theirs[file][name], f"{file} {name}"


@pytest.mark.parametrize("case", SEARCHED, ids=str)
def test_searched_formats_differ_only_by_modelopts_extra_rounding(
    oracle: Oracle, calibrations: Oracle, llama: Path, tmp_path: Path, case: tuple[str, str, int, int]
) -> None:
    """modelopt rounds smoothed weights to bfloat16 before it quantizes them, once or twice; we do not round them."""
    ours, theirs = (Checkpoint.open(folder) for folder in pair(oracle, calibrations, llama, tmp_path, case))
    assert set(ours.names) == set(theirs.names)
    for name in ours.names:
        if name in VOCABULARY:
            continue
        first, second = ours.stored(name), theirs.stored(name)
        assert (first.dtype, first.codes.shape) == (second.dtype, second.codes.shape), name
        if name.endswith(".weight") and first.scales:
            assert np.mean(first.codes == second.codes) > 0.9, name
            change = ours.tensor(name) - theirs.tensor(name)
            assert np.linalg.norm(change) < 0.06 * np.linalg.norm(theirs.tensor(name)), name
        elif not name.endswith(".weight"):
            one, two = (c._value(name) for c in (ours, theirs))
            # W4A8: modelopt takes the largest input after each of q's, k's and v's own vector, but writes their mean.
            assert np.allclose(one, two, rtol=0.2 if name.endswith("qkv.activation_scaling_factor") else 0.02), name


# What differs from modelopt's config.json on purpose, and why:
DELIBERATE = {
    "producer": "ours",
    "logits_dtype": "float32, TensorRT-LLM's default, where modelopt says float16 for bfloat16 models",
    "vocab_size": "the model's own: modelopt writes the padded one for four-bit formats",
    "use_parallel_embedding": "only with several tensor ranks",
    "rank": "a rank has no place in a file that all ranks share",
    "bias": "said as attn_bias and mlp_bias, which LLaMAConfig reads",
    "quantization": "exclude_modules is TensorRT-LLM's default in full; pre_quant_scale says what is in the files",
    "mapping": "all keys",
    "rotary_pct": "only where heads are turned in part",
}


@pytest.mark.parametrize("case", [("fp8", "fp8", 2, 1), ("int4_rtn", "auto", 2, 1)], ids=str)
def test_every_key_of_modelopts_config_is_there_but_for_a_list(
    oracle: Oracle, calibrations: Oracle, llama: Path, tmp_path: Path, case: tuple[str, str, int, int]
) -> None:
    folders = pair(oracle, calibrations, llama, tmp_path, case)
    ours, theirs = (read_object(folder / "config.json") for folder in folders)
    differing = {key for key in theirs if theirs[key] != ours.get(key)}
    unread = {"decoder", "rmsnorm", "lm_head_bias", "residual_mlp"}  # modelopt's own notes; no loader reads them
    assert differing <= set(DELIBERATE) | unread
    assert ours["quantization"]["pre_quant_scale"] is False if case[0] == "int4_rtn" else True
    assert ours["quantization"]["quant_algo"] == theirs["quantization"]["quant_algo"]
    assert ours["quantization"]["kv_cache_quant_algo"] == theirs["quantization"]["kv_cache_quant_algo"]
    assert (ours["vocab_size"], ours["rotary_base"]) == (1001, 500000.0)


def test_experts_are_bit_equal(tmp_path: Path) -> None:
    pytest.importorskip("modelopt.torch.quantization")
    model = families.write(tmp_path / "model", "mixtral", vocab_size=1001)
    theirs, seen = tmp_path / "theirs", tmp_path / "seen"
    theirs.mkdir()
    seen.mkdir()
    calibrate_here(model, seen, "fp8")
    export(model, theirs, "fp8", "auto", 2, 1)
    ours = files(write_quantized(model, tmp_path / "ours", "fp8", "auto", 2, 1, calibration=seen))
    assert ours == files(theirs)
    assert ours["rank0.safetensors"]["transformer.layers.0.mlp.fc.weights_scaling_factor"]["shape"] == [4, 1]
