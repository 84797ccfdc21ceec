"""Checkpoints that modelopt wrote, of every format and several splits, read back and held against their source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.quantize.conftest import Oracle
from trtspec.checkpoint.codecs import E4M3_VALUES, decode, encode_e4m3
from trtspec.checkpoint.readback import Checkpoint
from trtspec.checkpoint.tensors import TensorSource, read_blocks

pytestmark = pytest.mark.torch

LINEARS = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.dense": ("self_attn.o_proj",),
    "mlp.fc": ("mlp.gate_proj",),
    "mlp.gate": ("mlp.up_proj",),
    "mlp.proj": ("mlp.down_proj",),
}
# Largest error ÷ largest weight, and the norm of the error ÷ the norm of the weights: what each format can do at best
# on random weights, measured on 256 × 512 matrices; see docs/quantization.md.
BOUNDS = {
    "none": (0, 0), "fp8": (0.04, 0.028), "fp8_pc_pt": (0.04, 0.028), "int8_sq": (0.05, 0.025),
    "int4_rtn": (0.075, 0.13), "int4_awq": (0.12, 0.14), "w4a8_awq": (0.12, 0.14), "nvfp4": (0.15, 0.10),
}  # fmt: skip
SPLITS = [
    ("none", "auto", 2, 2), ("none", "auto", 8, 1), ("fp8", "fp8", 2, 1), ("fp8", "auto", 8, 1),
    ("fp8_pc_pt", "auto", 2, 1), ("int8_sq", "auto", 2, 1), ("int4_rtn", "auto", 2, 1), ("int4_awq", "fp8", 2, 2),
    ("w4a8_awq", "auto", 2, 1), ("nvfp4", "auto", 2, 1),
]  # fmt: skip


def source(folder: Path, name: str) -> np.ndarray:
    """A bfloat16 tensor of the Hugging Face folder as float32."""
    info = TensorSource.open(folder).tensors[name]
    codes = np.frombuffer(b"".join(read_blocks(info)), "<u2").reshape(info.shape)
    return decode(codes, "BF16")


def whole(folder: Path, layer: int, linear: str) -> np.ndarray:
    return np.concatenate([source(folder, f"model.layers.{layer}.{part}.weight") for part in LINEARS[linear]])


@pytest.mark.parametrize(("weights", "kv", "tp", "pp"), SPLITS, ids=lambda v: str(v))
def test_every_weight_is_the_sources_within_the_formats_bounds(
    oracle: Oracle, llama: Path, weights: str, kv: str, tp: int, pp: int
) -> None:
    checkpoint = Checkpoint.open(oracle(weights, kv, tp, pp))
    largest, norm = BOUNDS[weights]
    for layer in range(2):
        for linear in LINEARS:
            wanted = whole(llama, layer, linear)
            error = checkpoint.tensor(f"transformer.layers.{layer}.{linear}.weight") - wanted
            assert np.abs(error).max() <= largest * np.abs(wanted).max(), (linear, layer)
            assert np.linalg.norm(error) <= norm * np.linalg.norm(wanted), (linear, layer)
    head = checkpoint.tensor("lm_head.weight")
    assert np.array_equal(head[:1001], source(llama, "lm_head.weight"))
    assert not head[1001:].any()  # modelopt's INT4 and FP4 exports say 1024 rows
    assert np.array_equal(checkpoint.tensor("transformer.ln_f.weight"), source(llama, "model.norm.weight"))


@pytest.mark.parametrize("weights", ["fp8", "int8_sq", "int4_awq", "nvfp4"])
def test_one_rank_and_two_hold_the_same(oracle: Oracle, weights: str) -> None:
    kv = "fp8" if weights == "fp8" else "auto"
    one, two = Checkpoint.open(oracle(weights, kv, 1, 1)), Checkpoint.open(oracle(weights, kv, 2, 1))
    assert set(one.names) == set(two.names)
    for name in one.names:
        first, second = one.stored(name).codes, two.stored(name).codes
        assert first.dtype == second.dtype
        if name in ("lm_head.weight", "transformer.vocab_embedding.weight"):  # cut off at a padded size
            first, second = first[:1001], second[:1001]
        assert np.array_equal(first, second), name


@pytest.mark.parametrize(
    ("weights", "kind"),
    [("fp8", "fp8-static"), ("fp8_pc_pt", "fp8-token"), ("int8_sq", "int8-static"), ("w4a8_awq", "fp8-static"),
     ("nvfp4", "nvfp4-block"), ("int4_awq", "none")],
)  # fmt: skip
def test_what_a_linear_does_to_its_inputs(oracle: Oracle, weights: str, kind: str) -> None:
    kv = "fp8" if weights in ("fp8", "int4_awq") else "auto"
    checkpoint = Checkpoint.open(oracle(weights, kv, 2, 2 if weights == "int4_awq" else 1))
    quant = checkpoint.activation("transformer.layers.1.attention.dense")
    assert quant is not None
    assert quant.kind == kind
    assert (quant.scale is None) == (kind in ("none", "fp8-token"))
    assert (quant.prequant is not None) == (weights in ("int8_sq", "int4_awq", "w4a8_awq"))
    assert quant.prequant is None or quant.prequant.shape == (256,)
    assert checkpoint.activation("lm_head") is None
    assert checkpoint.kv_scale(1) == (1.0 if kv == "fp8" else None)


def test_round_to_nearest_int4_leaves_inputs_alone(oracle: Oracle) -> None:
    checkpoint = Checkpoint.open(oracle("int4_rtn", "auto", 2, 1))
    # modelopt declares a vector that it does not write; the files decide.
    assert checkpoint.quantization["pre_quant_scale"] is True
    found = checkpoint.activation("transformer.layers.0.mlp.fc")
    assert found is None or found.prequant is None


def test_w4a8_runs_with_fp8_weights(oracle: Oracle) -> None:
    checkpoint = Checkpoint.open(oracle("w4a8_awq", "auto", 2, 1))
    name = "transformer.layers.0.mlp.fc.weight"
    held = checkpoint.stored(name)
    second = held.scale("weights_scaling_factor_2")
    assert second is not None
    codes = checkpoint.executed(name) / second.reshape(-1)[0]
    grid = E4M3_VALUES[encode_e4m3(codes.astype(np.float32))]
    assert np.allclose(codes, grid, rtol=1e-6)
    assert 0 < np.abs(codes).max() <= 448
