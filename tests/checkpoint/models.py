"""Small random Llama folders in Hugging Face layout."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
Tensors = dict[str, dict[str, Any]]


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes that transformers gives a Llama of this config.json."""
    h, inner, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    dim = config.get("head_dim") or h // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    linears = {
        "self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
        "self_attn.o_proj": (h, q),
        "mlp.gate_proj": (inner, h), "mlp.up_proj": (inner, h), "mlp.down_proj": (h, inner),
    }  # fmt: skip
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, h), "model.norm.weight": (h,)}
    for i in range(config["num_hidden_layers"]):
        for name, shape in linears.items():
            found[f"model.layers.{i}.{name}.weight"] = shape
            biased = config.get("mlp_bias" if name.startswith("mlp") else "attention_bias")
            found |= {f"model.layers.{i}.{name}.bias": shape[:1]} if biased else {}
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{i}.{name}.weight"] = (h,)
    return found if config["tie_word_embeddings"] else found | {"lm_head.weight": (vocab, h)}


def random_tensors(config: dict[str, Any], dtype: str = "F32", seed: int = 0) -> Tensors:
    """Ordinary float values in the stored type; bfloat16 is the upper half of float32."""
    rng = np.random.default_rng(seed)
    found: Tensors = {}
    for name, shape in shapes(config).items():
        wide = rng.standard_normal(shape).astype("<f4")
        stored = wide.astype("<f2") if dtype == "F16" else (wide.view("<u4") >> 16).astype("<u2")
        data = (wide if dtype == "F32" else stored).tobytes()
        found[name] = {"dtype": dtype, "shape": list(shape), "data": data}
    return found


def write_model(folder: Path, dtype: str = "F32", shards: int = 1, seed: int = 0, **changes: Any) -> Tensors:
    """Write config.json and weights; `changes` replace config keys (None removes one). Returns the tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = random_tensors(config, dtype, seed)
    write_weights(folder, tensors, shards)
    return tensors


def write_weights(folder: Path, tensors: Tensors, shards: int = 1) -> None:
    """One model.safetensors, or shards and their index."""
    if shards == 1:
        save(folder / "model.safetensors", tensors)
        return
    names = sorted(tensors)
    files = {f"model-{i + 1:05d}-of-{shards:05d}.safetensors": names[i::shards] for i in range(shards)}
    for file, held in files.items():
        save(folder / file, {name: tensors[name] for name in held})
    weight_map = {name: file for file, held in files.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def save(path: Path, tensors: Tensors) -> None:
    """Plain safetensors, written here: the library's own writer has no bfloat16 without torch."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        end = at + len(tensor["data"])
        header[name] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t["data"] for t in tensors.values()))


def load(path: Path) -> Tensors:
    """Through the library, so that our writer is judged by a reader we did not write."""
    return dict(safetensors.deserialize(path.read_bytes()))
