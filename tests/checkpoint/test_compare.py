"""A checkpoint held against its source: what is right is found right in every family, and every damage is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoint.madefamilies import CONFIGS, write_family
from tests.checkpoint.models import load, save
from trtspec.checkpoint.bounds import Bounds
from trtspec.checkpoint.claims import broken_scales, wrong_claims
from trtspec.checkpoint.compare import Compared, Comparison
from trtspec.checkpoint.convert import convert, write_checkpoint
from trtspec.checkpoint.header import TensorInfo, read_header
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.quantize.plan import quantized
from trtspec.errors import ModelFileError

# Sizes that INT4 groups of 32 and two ranks divide.
LARGE = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 8}


def made(root: Path, family: str = "llama", weights: str = "none", tensor: int = 1, pipeline: int = 1,
         dtype: str = "auto", source: str = "F32", **changes: Any) -> tuple[Path, Path]:  # fmt: skip
    """A model and its checkpoint."""
    model, out = root / "model", root / "checkpoint"
    write_family(model, family, stored_as=source, **changes)
    out.mkdir()
    if weights == "none":
        convert(model, out, tensor=tensor, pipeline=pipeline, dtype=dtype)
    else:
        plan = plan_conversion(model, tensor=tensor, pipeline=pipeline, dtype=dtype)
        write_checkpoint(quantized(plan, weights, group_size=32), out)
    return model, out


def wrong(model: Path, out: Path) -> list[Compared]:
    return [tensor for tensor in Comparison.open(model, out).tensors() if not tensor.good]


def place(out: Path, name: str, rank: int = 0) -> TensorInfo:
    return read_header(out / f"rank{rank}.safetensors")[name]


def poke(info: TensorInfo, data: bytes, at: int = 0) -> None:
    with info.path.open("r+b") as file:
        file.seek(info.begin + at)
        file.write(data)


def peek(info: TensorInfo) -> bytes:
    return info.path.read_bytes()[info.begin : info.begin + info.nbytes]


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (8, 1), (2, 3)])
def test_every_family_and_layout_is_found_equal(family: str, tensor: int, pipeline: int, tmp_path: Path) -> None:
    model, out = made(tmp_path, family, tensor=tensor, pipeline=pipeline)
    comparison = Comparison.open(model, out)
    found = list(comparison.tensors())
    assert {t.outcome for t in found} == {"equal"}
    assert len(found) == len(comparison.plan.rules)
    assert wrong_claims(comparison.plan.config, comparison.checkpoint.config) == []


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_moe"])
@pytest.mark.parametrize(("source", "dtype"), [("BF16", "float16"), ("F32", "bfloat16"), ("BF16", "auto")])
def test_a_cast_is_recomputed(family: str, source: str, dtype: str, tmp_path: Path) -> None:
    model, out = made(tmp_path, family, dtype=dtype, source=source)
    assert wrong(model, out) == []


@pytest.mark.parametrize("weights", ["int8_wo", "int4_wo", "int4_rtn", "fp8_pc_pt"])
@pytest.mark.parametrize("tensor", [1, 2])
def test_quantized_weights_lie_within_their_rounding(weights: str, tensor: int, tmp_path: Path) -> None:
    model, out = made(tmp_path, "qwen2", weights, tensor, source="BF16", **LARGE)
    found = list(Comparison.open(model, out).tensors())
    assert all(t.good for t in found), [t for t in found if not t.good]
    rounded = [t for t in found if t.outcome == "rounded"]
    assert len(rounded) == (0 if weights.endswith("_wo") else 5 * 3)
    for tensor_ in rounded:
        # The bound is met, and is no more than the rounding: the worst of many elements comes close to it.
        assert 0.8 < tensor_.share <= 1.0
        assert tensor_.relative < (0.15 if weights == "int4_rtn" else 0.05)
    assert list(broken_scales(Comparison.open(model, out).checkpoint)) == []


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Eight ranks of four KV heads, 50 rows padded to 56, biases: copies and padding are there to be damaged."""
    return made(tmp_path_factory.mktemp("biased"), "llama-biased", tensor=8)


def is_found(model: Path, out: Path, info: TensorInfo, at: int, bit: int) -> bool:
    """Whether a flipped bit is; it is put back."""
    before = peek(info)[at]
    poke(info, bytes([before ^ (1 << bit)]), at)
    found = {t.name for t in wrong(model, out)}
    poke(info, bytes([before]), at)
    return info.name in found


@settings(max_examples=25)
@given(data=st.data())
def test_any_flipped_bit_of_any_rank_is_found(data: st.DataObject, biased: tuple[Path, Path]) -> None:
    model, out = biased
    header = read_header(out / f"rank{data.draw(st.integers(0, 7))}.safetensors")
    info = header[data.draw(st.sampled_from(sorted(header)))]
    assert is_found(model, out, info, data.draw(st.integers(0, info.nbytes - 1)), data.draw(st.integers(0, 7)))


@pytest.mark.parametrize("kind", ["attention.dense.bias", "mlp.proj.bias"])
def test_a_flipped_bit_in_a_copy_of_a_row_parallel_bias_is_found(kind: str, biased: tuple[Path, Path]) -> None:
    model, out = biased
    assert is_found(model, out, place(out, f"transformer.layers.1.{kind}", rank=5), 3, 6)


@pytest.mark.parametrize("weights", ["int4_rtn", "fp8_pc_pt"])
def test_a_code_that_is_two_steps_off_is_found(weights: str, tmp_path: Path) -> None:
    model, out = made(tmp_path, "qwen2", weights, **LARGE)
    info = place(out, "transformer.layers.1.mlp.proj.weight")
    code = peek(info)[7]
    poke(info, bytes([(code & 0xF0) | ((code + 2) & 0x0F) if weights == "int4_rtn" else code ^ 0x10]), 7)
    assert [t.name for t in wrong(model, out)] == [info.name]


def test_swapped_queries_and_keys_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, num_key_value_heads=8)
    info = place(out, "transformer.layers.0.attention.qkv.weight")
    data, third = peek(info), info.nbytes // 3
    poke(info, data[third : 2 * third] + data[:third] + data[2 * third :])
    assert [t.name for t in wrong(model, out)] == [info.name]


def test_swapped_gate_and_up_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path)
    one, other = (place(out, f"transformer.layers.2.mlp.{which}.weight") for which in ("fc", "gate"))
    a, b = peek(one), peek(other)
    poke(one, b)
    poke(other, a)
    assert {t.name for t in wrong(model, out)} == {one.name, other.name}


def test_a_lost_plus_one_is_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, "gemma")
    info = place(out, "transformer.layers.0.input_layernorm.weight")
    values = np.frombuffer(peek(info), "<f4") - np.float32(1.0)
    poke(info, values.tobytes())
    (found,) = wrong(model, out)
    assert found.name == info.name
    assert found.error == pytest.approx(1.0, abs=1e-5)


def test_swapped_rank_files_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, tensor=2)
    (out / "rank0.safetensors").rename(out / "x")
    (out / "rank1.safetensors").rename(out / "rank0.safetensors")
    (out / "x").rename(out / "rank1.safetensors")
    names = {t.name for t in wrong(model, out)}
    assert "transformer.layers.0.attention.qkv.weight" in names
    assert "transformer.layers.0.mlp.proj.weight" in names
    assert "transformer.ln_f.weight" not in names


def test_swapped_pipeline_stages_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, pipeline=3)
    shutil.copy(out / "rank1.safetensors", out / "x")
    shutil.copy(out / "rank2.safetensors", out / "rank1.safetensors")
    (out / "x").rename(out / "rank2.safetensors")
    assert wrong(model, out)


@pytest.mark.parametrize("key", ["rotary_base", "norm_epsilon", "rotary_scaling", "num_key_value_heads", "hidden_size"])
def test_a_wrong_or_lost_claim_is_found(key: str, tmp_path: Path) -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    model, out = made(tmp_path, rope_theta=500000.0, rope_scaling=scaling)
    comparison = Comparison.open(model, out)
    held = dict(comparison.checkpoint.config)
    for value in (None, {"rope_type": "linear", "factor": 2.0} if key == "rotary_scaling" else 3):
        assert [c.key for c in wrong_claims(comparison.plan.config, held | {key: value})] == [key]


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("llama", "hidden_act", None),
        ("llama", "position_embedding_type", None),
        ("mixtral", "moe", None),
        ("gemma2", "attn_logit_softcapping", None),
        ("gemma3", "rope_local_base_freq", None),
        ("gemma2", "architecture", "LlamaForCausalLM"),
        ("llama", "architecture", None),
        ("llama", "architecture", {}),
        ("mixtral", "mapping", {"tp_size": 2, "moe_tp_size": 1, "moe_ep_size": 2}),
        ("llama", "mapping", {"tp_size": 2, "world_size": 4}),
    ],
)
def test_what_a_loader_would_guess_or_refuse_is_found(family: str, key: str, value: object, tmp_path: Path) -> None:
    comparison = Comparison.open(*made(tmp_path, family, tensor=2))
    found = wrong_claims(comparison.plan.config, {**comparison.checkpoint.config, key: value})
    assert {claim.key.partition(".")[0] for claim in found} == {key}


def test_architectures_that_one_class_loads_are_no_fault(tmp_path: Path) -> None:
    comparison = Comparison.open(*made(tmp_path, "mistral"))
    held = {**comparison.checkpoint.config, "architecture": "LlamaForCausalLM"}
    assert wrong_claims(comparison.plan.config, held) == []


def test_windows_that_moved_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, "gemma2")
    comparison = Comparison.open(model, out)
    held = {**comparison.checkpoint.config, "layer_windows": [None, 8, None]}
    assert [str(c) for c in wrong_claims(comparison.plan.config, held)] == [
        "layer_windows is [null, 8, null], the model says [8, null, 8]"
    ]


def test_what_another_writer_says_in_its_own_way_is_no_fault(tmp_path: Path) -> None:
    model, out = made(tmp_path)
    comparison = Comparison.open(model, out)
    held = {**comparison.checkpoint.config, "producer": {"name": "other"}, "logits_dtype": "float16", "extra": 1}
    del held["qk_layernorm"]
    assert wrong_claims(comparison.plan.config, held) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_scales_that_no_calibration_gives_are_found(value: float, tmp_path: Path) -> None:
    model, out = made(tmp_path, "qwen2", "fp8_pc_pt", **LARGE)
    info = place(out, "transformer.layers.1.attention.dense.per_channel_scale")
    poke(info, np.float32(value).tobytes())
    checkpoint = Comparison.open(model, out).checkpoint
    (said,) = broken_scales(checkpoint)
    assert said.startswith(info.name)
    assert wrong(model, out)


def test_groups_of_another_size_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, "qwen2", "int4_rtn", **LARGE)
    config = json.loads((out / "config.json").read_text())
    for size in (16, 33, 64, "x"):
        config["quantization"]["group_size"] = size
        (out / "config.json").write_text(json.dumps(config))
        assert "transformer.layers.0.mlp.fc.weight" in {t.name for t in wrong(model, out)}


def test_zero_points_that_are_claimed_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, "qwen2", "int4_rtn", **LARGE)
    config = json.loads((out / "config.json").read_text())
    config["quantization"]["has_zero_point"] = True
    (out / "config.json").write_text(json.dumps(config))
    assert ["has_zero_point" in said for said in broken_scales(Comparison.open(model, out).checkpoint)] == [True]


def test_cache_scales_that_contradict_each_other_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path, "llama")
    weights = load(out / "rank0.safetensors")
    scales = {"k": 0.5, "v": 0.25, "kv": 0.25}
    for kind, value in scales.items():
        data = np.float32(value).tobytes()
        name = f"transformer.layers.1.attention.{kind}_cache_scaling_factor"
        weights[name] = {"dtype": "F32", "shape": [1], "data": data}
    save(out / "rank0.safetensors", {n: {**t, "data": bytes(t["data"])} for n, t in weights.items()})
    (said,) = broken_scales(Comparison.open(model, out).checkpoint)
    assert "kv_cache_scaling_factor is not the larger" in said


def test_plain_weights_that_are_said_to_be_codes_are_found(tmp_path: Path) -> None:
    model, out = made(tmp_path)
    config = json.loads((out / "config.json").read_text())
    config["quantization"] = {"quant_algo": "FP8", "exclude_modules": ["*lm_head", "*.mlp.proj"]}
    (out / "config.json").write_text(json.dumps(config))
    names = {t.name for t in wrong(model, out)}
    assert "transformer.layers.0.attention.qkv.weight" in names
    assert "transformer.layers.0.mlp.proj.weight" not in names


def test_a_tensor_too_many_and_one_too_few_are_named(tmp_path: Path) -> None:
    model, out = made(tmp_path, "llama-biased")
    write_family(model, "llama-biased", mlp_bias=False)
    extra = {t.name for t in wrong(model, out) if t.outcome == "extra"}
    assert {t.split(".", 3)[3] for t in extra} == {"mlp.fc.bias", "mlp.gate.bias", "mlp.proj.bias"}


def test_broken_folders_are_errors_not_verdicts(tmp_path: Path) -> None:
    model, out = made(tmp_path)
    config = json.loads((out / "config.json").read_text())
    damages = ({"dtype": "int3"}, {"mapping": {"tp_size": 2, "pp_size": 1}}, {"num_hidden_layers": 7},
               {"vocab_size": None}, {"num_attention_heads": None}, {"num_key_value_heads": "x"})  # fmt: skip
    for damage in damages:
        (out / "config.json").write_text(json.dumps(config | damage))
        with pytest.raises(ModelFileError):
            list(Comparison.open(model, out).tensors())


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_bounds_are_tight_for_rounding_to_nearest(seed: int, scale: float) -> None:
    """INT8 by hand: no element breaks the bound, and one step more breaks it everywhere."""
    from trtspec.checkpoint.formats import FORMATS
    from trtspec.checkpoint.readback import Stored

    source = (np.random.default_rng(seed).standard_normal((4, 64)) * scale).astype(np.float32)
    steps = (np.abs(source).max(1) / 127).astype(np.float32)
    codes = np.clip(np.rint(source / steps[:, None]), -128, 127).astype(np.float32)
    held = Stored("I8", codes.astype(np.int8), {"weights_scaling_factor": ("F32", steps)})
    bounds = Bounds.of(FORMATS["int8_sq"], held, 4, 0, "F32").allowed(source, 0)
    assert (np.abs(codes * steps[:, None] - source) <= bounds).all()
    assert (np.abs((codes + 1) * steps[:, None] - source) > bounds * 0.99).all()
