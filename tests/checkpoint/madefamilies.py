"""A tiny model of every family: config.json and tensors under the names transformers gives them, made by hand here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoint.models import Tensors, write_weights

COMMON: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
GEMMA = {"tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh"}
SOFT = {"query_pre_attn_scalar": 16, "sliding_window": 8}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "llama-biased": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True, "mlp_bias": True,
    },
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 8},
    "mixtral": {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": None,
    },
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True},
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "norm_topk_prob": True, "mlp_only_layers": [1],
    },
    "gemma": {"architectures": ["GemmaForCausalLM"], "model_type": "gemma", **GEMMA},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", **GEMMA, **SOFT},
    "gemma3": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", **GEMMA, **SOFT},
    "phi3": {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "partial_rotary_factor": 0.5, "pad_token_id": 0,
    },
}  # fmt: skip


def config_of(family: str, **changes: Any) -> dict[str, Any]:
    """config.json of a family; `changes` replace keys."""
    return {**COMMON, **CONFIGS[family], **changes}


def layer_shapes(config: dict[str, Any], index: int) -> dict[str, tuple[int, ...]]:
    """Weights of one layer without norms: names below the layer."""
    h, inner, dim, kind = config["hidden_size"], config["intermediate_size"], config["head_dim"], config["model_type"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    attention = {"self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h)}
    if kind == "phi3":
        attention = {"self_attn.qkv_proj": (q + 2 * kv, h)}
    found = {**attention, "self_attn.o_proj": (h, q)}
    if kind == "mixtral":
        found["block_sparse_moe.gate"] = (config["num_local_experts"], h)
        for e in range(config["num_local_experts"]):
            found |= {
                f"block_sparse_moe.experts.{e}.{w}": s
                for w, s in (("w1", (inner, h)), ("w3", (inner, h)), ("w2", (h, inner)))
            }
    elif kind == "qwen3_moe" and index not in config["mlp_only_layers"]:
        small = config["moe_intermediate_size"]
        found["mlp.gate"] = (config["num_experts"], h)
        for e in range(config["num_experts"]):
            found |= {f"mlp.experts.{e}.{p}_proj": (small, h) for p in ("gate", "up")}
            found[f"mlp.experts.{e}.down_proj"] = (h, small)
    elif kind == "phi3":
        found |= {"mlp.gate_up_proj": (2 * inner, h), "mlp.down_proj": (h, inner)}
    else:
        found |= {"mlp.gate_proj": (inner, h), "mlp.up_proj": (inner, h), "mlp.down_proj": (h, inner)}
    return found


def layer_norms(config: dict[str, Any]) -> dict[str, int]:
    """Norms of one layer and their sizes."""
    h, dim, kind = config["hidden_size"], config["head_dim"], config["model_type"]
    found = {"input_layernorm": h, "post_attention_layernorm": h}
    if kind in ("gemma2", "gemma3_text"):
        found |= {"pre_feedforward_layernorm": h, "post_feedforward_layernorm": h}
    if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
        found |= {"self_attn.q_norm": dim, "self_attn.k_norm": dim}
    return found


def biased(config: dict[str, Any], name: str) -> bool:
    """Whether transformers gives this linear a bias."""
    if config["model_type"] == "qwen2":
        return name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    return bool(config.get("attention_bias" if name.startswith("self_attn") else "mlp_bias"))


def shapes(config: dict[str, Any], prefix: str = "model.") -> dict[str, tuple[int, ...]]:
    """Every tensor of the model."""
    vocabulary = (config["vocab_size"], config["hidden_size"])
    found: dict[str, tuple[int, ...]] = {
        f"{prefix}embed_tokens.weight": vocabulary,
        f"{prefix}norm.weight": vocabulary[1:],
    }
    for i in range(config["num_hidden_layers"]):
        for name, shape in layer_shapes(config, i).items():
            found[f"{prefix}layers.{i}.{name}.weight"] = shape
            found |= {f"{prefix}layers.{i}.{name}.bias": shape[:1]} if biased(config, name) else {}
        found |= {f"{prefix}layers.{i}.{name}.weight": (size,) for name, size in layer_norms(config).items()}
    return found if config["tie_word_embeddings"] else found | {"lm_head.weight": vocabulary}


def arrays(config: dict[str, Any], seed: int = 0, prefix: str = "model.") -> dict[str, np.ndarray[Any, Any]]:
    """Ordinary float32 values for every tensor."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes(config, prefix).items()}


def stored(values: dict[str, np.ndarray[Any, Any]], dtype: str = "F32") -> Tensors:
    """As safetensors entries; bfloat16 is the upper half of the float32."""
    found: Tensors = {}
    for name, value in values.items():
        half = value.astype("<f2") if dtype == "F16" else (value.view("<u4") >> 16).astype("<u2")
        data = (value if dtype == "F32" else half).tobytes()
        found[name] = {"dtype": dtype, "shape": list(value.shape), "data": data}
    return found


def write_family(
    folder: Path, family: str, stored_as: str = "F32", shards: int = 1, seed: int = 0, **changes: Any
) -> dict[str, np.ndarray[Any, Any]]:
    """Write config.json and weights; returns the float32 values before they were stored."""
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(family, **changes)
    (folder / "config.json").write_text(json.dumps(config))
    values = arrays(config, seed)
    write_weights(folder, stored(values, stored_as), shards)
    return values
