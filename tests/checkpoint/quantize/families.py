"""A small model of every family, made by transformers so that its layers can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checkpoint.quantize.conftest import hf_model

SIZES: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 103, "max_position_embeddings": 256,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralConfig", {"sliding_window": 16}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, **EXPERTS}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 4, "moe_intermediate_size": 64, **EXPERTS}),
    "gemma": ("GemmaConfig", {"hidden_activation": "gelu_pytorch_tanh"}),
    "gemma2": ("Gemma2Config", {"sliding_window": 16, "query_pre_attn_scalar": 16}),
    "gemma3": ("Gemma3TextConfig", {"sliding_window": 16, "query_pre_attn_scalar": 16}),
    "phi3": ("Phi3Config", {"pad_token_id": 0, "sliding_window": None}),
}
MIXTURES = ("mixtral", "qwen3_moe")


def write(folder: Path, family: str, dtype: str = "bfloat16", **changes: Any) -> Path:
    """The Hugging Face folder of a family's small model."""
    import transformers

    kind, own = CONFIGS[family]
    return hf_model(folder, getattr(transformers, kind)(**{**SIZES, **own, **changes}), dtype)
