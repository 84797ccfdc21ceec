"""Models that are quantized already: bit for bit where TensorRT-LLM can hold them, else refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.models import Tensors, load, save
from tests.checkpoint.quantize.conftest import Oracle, calibrate_here
from tests.checkpoint.quantize.made import LINEARS, LLAMA, entry, quantized_llama
from trtspec.checkpoint.codecs import E4M3_VALUES
from trtspec.checkpoint.compare import Comparison
from trtspec.checkpoint.convert import convert
from trtspec.checkpoint.readback import Checkpoint
from trtspec.errors import ConfigError, ModelFileError

RNG = np.random.default_rng(9)
FP8 = {"num_bits": 8, "type": "float"}


def compressed(strategy: str = "tensor", dynamic: bool = False, **more: Any) -> dict[str, Any]:
    """`quantization_config` of compressed-tensors."""
    inputs = {**FP8, "dynamic": dynamic, "strategy": "token" if dynamic else "tensor"}
    group = {"weights": {**FP8, "dynamic": False, "strategy": strategy}, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {**group, **more}},
        "ignore": ["lm_head"],
    }


def fp8_tensors(strategy: str = "tensor", *, static: bool = True, shared: bool = True) -> Tensors:
    found: Tensors = {}
    for layer in range(2):
        scale = np.float32(RNG.uniform(0.001, 0.002))
        for linear, (rows, columns) in LINEARS.items():
            name = f"model.layers.{layer}.{linear}"
            codes = RNG.integers(0, 127, (rows, columns), dtype=np.uint8)
            found[f"{name}.weight"] = {**entry(codes), "dtype": "F8_E4M3"}
            own = scale if shared else np.float32(RNG.uniform(0.001, 0.002))
            values = np.full((rows, 1) if strategy == "channel" else (1,), own, np.float32)
            if strategy == "channel":
                values = RNG.uniform(0.001, 0.002, (rows, 1)).astype(np.float32)
            # compressed-tensors keeps scales in the model's type.
            found[f"{name}.weight_scale"] = entry(values, "BF16")
            if static:
                found[f"{name}.input_scale"] = entry(np.full(1, 0.02, np.float32))
    return found


def source(tensors: Tensors, layer: int, linears: list[str]) -> np.ndarray:
    """The weights that the codes stand for."""
    found = []
    for linear in linears:
        name = f"model.layers.{layer}.{linear}"
        held, scale = tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"]
        codes = np.frombuffer(bytes(held["data"]), np.uint8).reshape(held["shape"])
        bits = np.frombuffer(bytes(scale["data"]), "<u2").astype(np.uint32) << 16
        found.append(E4M3_VALUES[codes] * bits.view(np.float32).reshape(-1, 1))
    return np.concatenate(found)


def converted(tmp_path: Path, folder: Path, tp: int = 2, pp: int = 1) -> Checkpoint:
    out = tmp_path / "out"
    out.mkdir()
    convert(folder, out, tensor=tp, pipeline=pp)
    return Checkpoint.open(out)


QKV = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]


@pytest.mark.parametrize(("strategy", "dynamic"), [("tensor", False), ("channel", True), ("tensor", True)])
def test_compressed_tensors_fp8_is_exact(tmp_path: Path, strategy: str, dynamic: bool) -> None:
    # With scales for rows, parts of a fused matrix may differ.
    tensors = fp8_tensors(strategy, static=not dynamic, shared=not dynamic)
    checkpoint = converted(tmp_path, quantized_llama(tmp_path / "model", tensors, compressed(strategy, dynamic)), 2, 2)
    assert checkpoint.format.name == ("fp8_pc_pt" if dynamic else "fp8")
    for layer in range(2):
        for ours, theirs in (("attention.qkv", QKV), ("attention.dense", ["self_attn.o_proj"]),
                             ("mlp.proj", ["mlp.down_proj"])):  # fmt: skip
            wanted = source(tensors, layer, theirs)
            assert np.array_equal(checkpoint.tensor(f"transformer.layers.{layer}.{ours}.weight"), wanted)
    quant = checkpoint.activation("transformer.layers.1.mlp.fc")
    assert quant is not None
    assert quant.scale == (None if dynamic else np.float32(0.02))


def test_codes_are_copied_bit_for_bit(tmp_path: Path) -> None:
    tensors = fp8_tensors()
    checkpoint = converted(tmp_path, quantized_llama(tmp_path / "model", tensors, compressed()), 1)
    name = "transformer.layers.0.mlp.gate.weight"
    assert checkpoint.stored(name).codes.tobytes() == tensors["model.layers.0.mlp.up_proj.weight"]["data"]


def test_scales_of_the_cache_are_kept(tmp_path: Path) -> None:
    tensors = fp8_tensors()
    for layer in range(2):
        for kind, value in (("k", 0.25), ("v", 0.5)):
            tensors[f"model.layers.{layer}.self_attn.{kind}_scale"] = entry(np.full(1, value, np.float32))
    block = compressed() | {"kv_cache_scheme": {**FP8, "dynamic": False}}
    assert converted(tmp_path, quantized_llama(tmp_path / "model", tensors, block)).kv_scale(1) == 0.5


@pytest.fixture(scope="module")
def exported(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """modelopt's unified Hugging Face checkpoints of `llama`."""
    pytest.importorskip("modelopt.torch.quantization")
    made: dict[str, Path] = {}

    def export(weights: str) -> Path:
        if weights not in made:
            made[weights] = tmp_path_factory.mktemp(f"hf-{weights}")
            seen = tmp_path_factory.mktemp("seen")
            calibrate_here(llama, seen, weights, "fp8", hf_out=str(made[weights]))
        return made[weights]

    return export


@pytest.mark.torch
def test_modelopts_nvfp4_gives_what_its_engine_export_gives(
    exported: Callable[[str], Path], oracle: Oracle, tmp_path: Path
) -> None:
    ours, theirs = converted(tmp_path, exported("nvfp4")), Checkpoint.open(oracle("nvfp4", "auto", 2, 1))
    for name in theirs.weights:
        if ".mlp.gate." in name or not name.startswith("transformer.layers"):
            continue  # the engine export lets gate and up share a scale, this one does not
        one, two = ours.stored(name), theirs.stored(name)
        assert np.array_equal(one.codes, two.codes), name
        assert {s: v[1].tobytes() for s, v in one.scales.items()} == {s: v[1].tobytes() for s, v in two.scales.items()}
    assert 0 < ours.kv_scale(0) < 1  # type: ignore[operator]


@pytest.mark.torch
def test_modelopts_fp8_keeps_three_scales_for_one_matrix(exported: Callable[[str], Path], tmp_path: Path) -> None:
    folder = exported("fp8")
    with pytest.raises(ModelFileError, match=r"q_proj and .*k_proj and .*v_proj have different scales"):
        converted(tmp_path, folder)
    tensors = load(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(".weight_scale"):
            tensor["data"] = np.float32(0.001).tobytes()
    save(tmp_path / "same.safetensors", tensors)
    (tmp_path / "model").mkdir()
    for file in ("config.json", "hf_quant_config.json"):
        (tmp_path / "model" / file).write_bytes((folder / file).read_bytes())
    (tmp_path / "same.safetensors").rename(tmp_path / "model" / "model.safetensors")
    checkpoint = converted(tmp_path / "model", tmp_path / "model")
    codes = checkpoint.stored("transformer.layers.0.attention.dense.weight").codes
    assert codes.tobytes() == tensors["model.layers.0.self_attn.o_proj.weight"]["data"]


def int4_tensors(packing: str, zero: int = 8, stored_zero: int | None = None) -> tuple[Tensors, dict[str, np.ndarray]]:
    """Packed by loops that know nothing of the reader's, and the weights they stand for."""
    found: Tensors = {}
    values: dict[str, np.ndarray] = {}
    order = [0, 2, 4, 6, 1, 3, 5, 7] if packing == "awq" else list(range(8))
    for layer in range(2):
        for linear, (rows, columns) in LINEARS.items():
            name = f"model.layers.{layer}.{linear}"
            codes = RNG.integers(0, 16, (columns, rows)).astype(np.uint32)
            scales = RNG.uniform(0.001, 0.01, (columns // 64, rows)).astype(np.float16)
            axis = 1 if packing == "awq" else 0
            words = np.zeros((columns, rows // 8) if packing == "awq" else (columns // 8, rows), np.uint32)
            for i, place in enumerate(order):
                words |= np.take(codes, np.arange(place, codes.shape[axis], 8), axis=axis) << np.uint32(4 * i)
            zeros = np.zeros((columns // 64, rows // 8), np.uint32)
            for i in range(8):
                zeros |= np.uint32(zero if stored_zero is None else stored_zero) << np.uint32(4 * i)
            found[f"{name}.qweight"] = entry(words.view(np.int32))
            found[f"{name}.qzeros"] = entry(zeros.view(np.int32))
            found[f"{name}.scales"] = entry(scales)
            if packing == "gptq":
                found[f"{name}.g_idx"] = entry((np.arange(columns) // 64).astype(np.int32))
            each = np.repeat(scales.astype(np.float32), 64, axis=0)
            values[name] = ((codes.astype(np.float32) - 8) * each).T
    return found, values


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": True}


@pytest.mark.parametrize(
    ("block", "stored_zero"),
    [(AWQ, 8), (GPTQ, 7), (GPTQ | {"checkpoint_format": "gptq_v2"}, 8)],
    ids=["awq", "gptq-v1", "gptq-v2"],
)
def test_symmetric_int4_is_exact(tmp_path: Path, block: dict[str, Any], stored_zero: int) -> None:
    tensors, values = int4_tensors(str(block["quant_method"]), stored_zero=stored_zero)
    checkpoint = converted(tmp_path, quantized_llama(tmp_path / "model", tensors, block), 2, 2)
    assert checkpoint.quantization["quant_algo"] == "W4A16_AWQ"
    assert (checkpoint.quantization["pre_quant_scale"], checkpoint.quantization["group_size"]) == (False, 64)
    for layer in range(2):
        qkv = np.concatenate([values[f"model.layers.{layer}.{linear}"] for linear in QKV])
        assert np.array_equal(checkpoint.tensor(f"transformer.layers.{layer}.attention.qkv.weight"), qkv)
        down = values[f"model.layers.{layer}.mlp.down_proj"]
        assert np.array_equal(checkpoint.tensor(f"transformer.layers.{layer}.mlp.proj.weight"), down)


def without(tensors: Tensors, name: str) -> Tensors:
    return {key: value for key, value in tensors.items() if key != name}


REFUSED: dict[str, tuple[Callable[[], Tensors], dict[str, Any], str]] = {
    "zero points": (lambda: int4_tensors("awq", stored_zero=9)[0], AWQ, "zero points"),
    "three bits": (lambda: int4_tensors("gptq", stored_zero=7)[0], GPTQ | {"bits": 3}, "3 bits"),
    "gemv": (lambda: int4_tensors("awq")[0], AWQ | {"version": "gemv"}, "version gemv"),
    "group of 32": (lambda: int4_tensors("awq")[0], AWQ | {"group_size": 32}, "group size 32"),
    "three scales": (lambda: fp8_tensors(shared=False), compressed(), "different scales"),
    "weight-only": (fp8_tensors, compressed(input_activations=None), "inputs are not quantized"),
    "per-tensor dynamic": (
        fp8_tensors, compressed(input_activations={**FP8, "dynamic": True, "strategy": "tensor"}), "each tensor",
    ),
    "channel and static": (lambda: fp8_tensors("channel"), compressed("channel"), "each channel"),
    "int8": (fp8_tensors, compressed(weights={"num_bits": 8, "type": "int", "strategy": "tensor"}), "8-bit float"),
    "version that is a number": (lambda: int4_tensors("awq")[0], AWQ | {"version": 2}, "version 2"),
    "group that is no object": (fp8_tensors, {**compressed(), "config_groups": {"a": "8"}}, "do not say"),
    "weights that are a list": (fp8_tensors, compressed(weights=[8]), "do not say"),
    "two groups": (fp8_tensors, {**compressed(), "config_groups": {"a": {}, "b": {}}}, "several kinds"),
    "bitsandbytes": (fp8_tensors, {"quant_method": "bitsandbytes"}, "bitsandbytes"),
    "modelopt awq": (fp8_tensors, {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "W4A16_AWQ"),
    "mixed": (
        lambda: {**without(fp8_tensors(), "model.layers.1.mlp.down_proj.weight_scale"),
                 "model.layers.1.mlp.down_proj.weight": entry(np.ones((128, 256), np.float32), "BF16")},
        compressed(), r"down_proj.*not quantized",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_exact_is_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    tensors, block, why = REFUSED[case]
    folder = quantized_llama(tmp_path / "model", tensors(), block)
    with pytest.raises(ModelFileError, match=f"cannot be converted exactly.*{why}"):
        converted(tmp_path, folder)
    assert list((tmp_path / "out").iterdir()) == []


def test_reordered_gptq(tmp_path: Path) -> None:
    tensors, _ = int4_tensors("gptq", stored_zero=7)
    tensors["model.layers.1.mlp.up_proj.g_idx"] = entry(np.arange(128)[::-1].astype(np.int32) // 64)
    with pytest.raises(ModelFileError, match="desc_act"):
        converted(tmp_path, quantized_llama(tmp_path / "model", tensors, GPTQ))


def test_a_missing_scale_is_named(tmp_path: Path) -> None:
    tensors = without(fp8_tensors(), "model.layers.0.mlp.up_proj.input_scale")
    with pytest.raises(ModelFileError, match=r"up_proj\.input_scale' is missing"):
        converted(tmp_path, quantized_llama(tmp_path / "model", tensors, compressed()))


def test_a_weight_of_another_type(tmp_path: Path) -> None:
    tensors = fp8_tensors()
    tensors["model.layers.0.mlp.up_proj.weight"]["dtype"] = "I8"
    with pytest.raises(ModelFileError, match=r"does not fit.*I8.*F8_E4M3"):
        converted(tmp_path, quantized_llama(tmp_path / "model", tensors, compressed()))


def test_older_modelopt_says_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = quantized_llama(tmp_path / "model", fp8_tensors(), compressed())
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert converted(tmp_path, folder).format.name == "fp8"


def test_every_file_with_codes_is_part_of_the_key(tmp_path: Path) -> None:
    from trtspec.hashing import HashMemo
    from trtspec.workflows.convert import Conversion

    folder = quantized_llama(tmp_path / "model", fp8_tensors(), compressed())
    (folder / "hf_quant_config.json").write_text("{}")
    stage = Conversion(folder, tmp_path / "out").stage(HashMemo())
    assert set(stage.inputs["files"]) == {"config.json", "hf_quant_config.json", "model.safetensors"}  # type: ignore[call-overload]


def test_nothing_to_verify_it_against(tmp_path: Path) -> None:
    folder = quantized_llama(tmp_path / "model", fp8_tensors(), compressed())
    converted(tmp_path, folder)
    with pytest.raises(ModelFileError, match="source is quantized already"):
        Comparison.open(folder, tmp_path / "out")


def test_it_is_not_quantized_again(tmp_path: Path) -> None:
    from trtspec.checkpoint.plan import plan_conversion
    from trtspec.checkpoint.quantize.plan import quantized

    folder = quantized_llama(tmp_path / "model", fp8_tensors(), compressed())
    with pytest.raises(ConfigError, match=r"quantized already.*leave its quantization at"):
        quantized(plan_conversion(folder), "fp8_pc_pt")
