"""Calibrations and quantized Hugging Face folders made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoint.models import Tensors, save, write_weights
from trtspec.checkpoint.codecs import encode_bf16, encode_e4m3
from trtspec.checkpoint.quantize.calibration import TENSORS, Calibration, write_about

Array = np.ndarray[Any, Any]
TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int8": "I8", "uint8": "U8"}


def entry(values: Array, dtype: str | None = None) -> dict[str, Any]:
    """A safetensors entry; BF16 and F8_E4M3 from float32 values."""
    if dtype == "BF16":
        data = encode_bf16(values).tobytes()
    else:
        data = (encode_e4m3(values) if dtype == "F8_E4M3" else values).tobytes()
    return {"dtype": dtype or TYPES[str(values.dtype)], "shape": list(values.shape), "data": data}


def calibration(folder: Path, tensors: dict[str, Array]) -> Calibration:
    """A calibration folder of these float32 tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / TENSORS, {name: entry(np.asarray(value, np.float32)) for name, value in tensors.items()})
    write_about(folder, method="made")
    return Calibration.open(folder)


LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 50, "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 32, "max_position_embeddings": 128, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LINEARS = {
    "self_attn.q_proj": (128, 128), "self_attn.k_proj": (64, 128), "self_attn.v_proj": (64, 128),
    "self_attn.o_proj": (128, 128), "mlp.gate_proj": (256, 128), "mlp.up_proj": (256, 128), "mlp.down_proj": (128, 256),
}  # fmt: skip


def plain_tensors(rng: np.random.Generator) -> Tensors:
    """Everything of a Llama that stays plain."""
    names = {"model.embed_tokens.weight": (50, 128), "lm_head.weight": (50, 128), "model.norm.weight": (128,)}
    for layer in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            names[f"model.layers.{layer}.{norm}.weight"] = (128,)
    return {n: entry(rng.standard_normal(shape).astype(np.float32), "BF16") for n, shape in names.items()}


def quantized_llama(folder: Path, tensors: Tensors, block: dict[str, Any], **config: Any) -> Path:
    """A Hugging Face folder with `quantization_config`."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, **config, "quantization_config": block}))
    write_weights(folder, {**plain_tensors(np.random.default_rng(1)), **tensors})
    return folder
