"""Checkpoints quantized by hand, and transformers models that compute what those say: the oracle of the emulation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import DynamicCache

from trtspec.checkpoint.codecs import E4M3_VALUES, encode_e2m1, encode_e4m3, pack_columns, pack_rows
from trtspec.checkpoint.formats import FORMATS, KV_ALGOS, Format, quantization_block
from trtspec.checkpoint.readback import LINEARS, Checkpoint

GROUP = 16
AMAX = 6.0
"""What inputs are taken to reach; some do not, some go beyond and saturate."""
SOURCES = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.dense": ("self_attn.o_proj",),
    "mlp.fc": ("mlp.gate_proj",),
    "mlp.gate": ("mlp.up_proj",),
    "mlp.proj": ("mlp.down_proj",),
}
"""Linears of a checkpoint and the modules of a Llama-like transformers model that they replace."""


def quantize(checkpoint: Path, name: str, kv_cache: str = "auto", kv_scale: float = 0.05) -> None:
    """Rewrite a plain float32 checkpoint of one rank in the format `name`."""
    fmt = FORMATS[name]
    file, config = checkpoint / "rank0.safetensors", checkpoint / "config.json"
    tensors = load_file(file)
    rng = np.random.default_rng(7)
    for key in [k for k in tensors if k.endswith(tuple(f"{x}.weight" for x in LINEARS))]:
        linear = key.removesuffix(".weight")
        made = _quantized(tensors[key].numpy(), fmt, rng)
        tensors |= {f"{linear}.{suffix}": torch.from_numpy(np.ascontiguousarray(v)) for suffix, v in made.items()}
    for key in list(tensors):
        if fmt.stored == "F8_E4M3" and key.removesuffix(".weight").endswith(LINEARS):
            tensors[key] = tensors[key].view(torch.float8_e4m3fn)
        if fmt.name == "nvfp4" and key.endswith(".weights_scaling_factor"):
            tensors[key] = tensors[key].view(torch.float8_e4m3fn)
        if kv_cache != "auto" and key.endswith("attention.qkv.weight"):
            scale = key.replace("qkv.weight", "kv_cache_scaling_factor")
            tensors[scale] = torch.tensor([kv_scale])
    save_file(tensors, file)
    document = json.loads(config.read_text())
    document["quantization"] = quantization_block(fmt, kv_cache, GROUP if fmt.packs_rows else None)
    assert document["quantization"]["kv_cache_quant_algo"] == KV_ALGOS[kv_cache]
    config.write_text(json.dumps(document))


def _quantized(weight: np.ndarray, fmt: Format, rng: np.random.Generator) -> dict[str, Any]:
    if not fmt.stored:
        return {}
    made: dict[str, Any] = {}
    if fmt.prequant:
        made["prequant_scaling_factor"] = rng.uniform(0.5, 2.0, weight.shape[1]).astype(np.float32)
        weight = weight / made["prequant_scaling_factor"]
    made |= _WEIGHTS[fmt.name](weight)
    if fmt.activation in ("fp8-static", "int8-static"):
        made["activation_scaling_factor"] = np.array([AMAX / (448 if fmt.activation == "fp8-static" else 127)])
    if fmt.activation == "nvfp4-block":
        made["activation_scaling_factor"] = np.array(AMAX / (6 * 448))
    return {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in made.items()}


def _fp8(weight: np.ndarray) -> dict[str, Any]:
    if weight.ndim == 3:  # experts: a scale for each
        scales = np.abs(weight).max((1, 2)) / 448
        return {"weight": encode_e4m3(weight / scales[:, None, None]), "weights_scaling_factor": scales[:, None]}
    scale = np.array([np.abs(weight).max() / 448])
    return {"weight": encode_e4m3(weight / scale), "weights_scaling_factor": scale}


def _fp8_rows(weight: np.ndarray) -> dict[str, Any]:
    scale = np.abs(weight).max(1) / 448
    return {"weight": encode_e4m3(weight / scale[:, None]), "per_channel_scale": scale}


def _int8(weight: np.ndarray) -> dict[str, Any]:
    scale = np.abs(weight).max(1) / 127
    return {"weight": np.rint(weight / scale[:, None]).astype(np.int8), "weights_scaling_factor": scale}


def _int4(weight: np.ndarray) -> dict[str, Any]:
    blocks = weight.reshape(len(weight), -1, GROUP)
    scale = np.abs(blocks).max(2) / 7
    codes = np.rint(blocks / scale[..., None]).astype(np.int8).reshape(weight.shape)
    return {"weight": pack_rows(codes), "weights_scaling_factor": scale}


def _w4a8(weight: np.ndarray) -> dict[str, Any]:
    return _int4(weight) | {"weights_scaling_factor_2": np.array([np.abs(weight).max() / 448])}


def _nvfp4(weight: np.ndarray) -> dict[str, Any]:
    second = np.abs(weight).max() / (6 * 448)
    blocks = weight.reshape(len(weight), -1, GROUP)
    scale = encode_e4m3(np.abs(blocks).max(2) / 6 / second)
    values = scale.view(np.uint8)
    codes = encode_e2m1(blocks / (E4M3_VALUES[values] * second)[..., None]).reshape(weight.shape)
    return {
        "weight": pack_columns(codes),
        "weights_scaling_factor": scale,
        "weights_scaling_factor_2": np.array(second),
    }


_WEIGHTS: dict[str, Callable[[np.ndarray], dict[str, Any]]] = {
    "fp8": _fp8,
    "fp8_pc_pt": _fp8_rows,
    "int8_sq": _int8,
    "int4_rtn": _int4,
    "int4_awq": _int4,
    "w4a8_awq": _w4a8,
    "nvfp4": _nvfp4,
}


class _Linear(torch.nn.Module):
    """numpy's view of a quantized linear, in the place of a torch one."""

    def __init__(self, weight: np.ndarray, inputs: Any, bias: Any) -> None:
        super().__init__()
        self._matrix, self._inputs, self._bias = weight, inputs, bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = x.numpy() if self._inputs is None else self._inputs.apply(x.numpy())
        product = torch.from_numpy(values @ self._matrix.T)
        return product if self._bias is None else product + self._bias


def emulate(model: Any, checkpoint: Path) -> None:
    """Let a Llama-like `model` compute with the weights and input rounding of a quantized checkpoint."""
    opened = Checkpoint.open(checkpoint)
    for i, layer in enumerate(model.model.layers):
        moe = hasattr(layer, "block_sparse_moe")
        for linear, names in SOURCES.items():
            if moe and linear.startswith("mlp."):
                continue
            full = f"transformer.layers.{i}.{linear}"
            rows = opened.executed(f"{full}.weight")
            at = 0
            for name in names:
                parent, _, leaf = name.rpartition(".")
                owner = layer.get_submodule(parent)
                old = getattr(owner, leaf)
                size = old.weight.shape[0]
                setattr(owner, leaf, _Linear(rows[at : at + size], opened.activation(full), old.bias))
                at += size
        if moe:
            _emulate_experts(layer.block_sparse_moe.experts, opened, f"transformer.layers.{i}.mlp")


def _emulate_experts(experts: Any, opened: Checkpoint, name: str) -> None:
    both, down = opened.executed(f"{name}.fc.weight"), opened.executed(f"{name}.proj.weight")
    inputs = {linear: opened.activation(f"{name}.{linear}") for linear in ("fc", "proj")}
    for expert, up_gate, out in zip(experts, both, down, strict=True):
        up, gate = np.split(up_gate, 2)
        expert.w3, expert.w1 = _Linear(up, inputs["fc"], None), _Linear(gate, inputs["fc"], None)
        expert.w2 = _Linear(out, inputs["proj"], None)


class RoundedCache(DynamicCache):
    """A transformers cache that holds what an FP8 or INT8 one does."""

    def __init__(self, algo: str, scale: float) -> None:
        super().__init__()
        self._algo, self._scale = algo, scale

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
        return super().update(self._round(key_states), self._round(value_states), *args, **kwargs)

    def _round(self, x: torch.Tensor) -> torch.Tensor:
        if self._algo == "fp8":
            return (x / self._scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * self._scale
        return (x / self._scale).round().clamp(-128, 127) * self._scale
