"""Parameter counts of one model: by the architecture's arithmetic from config.json, and from weight headers."""

from __future__ import annotations

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.tensors import TensorSource

FLOATS = ("F16", "BF16", "F32", "F64")
DENSE = {
    # architecture: (bias on q, k, v whatever the config says, norms on q and k)
    "LlamaForCausalLM": (False, False),
    "MistralForCausalLM": (False, False),
    "Qwen2ForCausalLM": (True, False),
    "Qwen3ForCausalLM": (False, True),
}
"""Gated-MLP decoders whose size follows from the common keys."""


def parameters_by_config(facts: ModelFacts) -> int | None:
    """Parameters that config.json implies, a tied embedding counted once; None for an architecture not known here."""
    if facts.architecture not in DENSE:
        return None
    qkv_bias, qk_norm = DENSE[facts.architecture]
    hidden, inner, dim = facts.hidden_size, facts.intermediate_size, facts.head_dim
    q, kv = facts.num_attention_heads * dim, facts.num_key_value_heads * dim
    attention = hidden * (2 * q + 2 * kv) + (2 * dim if qk_norm else 0)
    attention += (q + 2 * kv) if qkv_bias or facts.attention_bias else 0
    attention += hidden if facts.attention_bias else 0
    mlp = 3 * hidden * inner + ((2 * inner + hidden) if facts.mlp_bias else 0)
    embeddings = facts.vocab_size * hidden * (1 if facts.tie_word_embeddings else 2)
    return embeddings + facts.num_hidden_layers * (attention + mlp + 2 * hidden) + hidden


def parameters_by_headers(source: TensorSource, tied: bool) -> int | None:
    """Parameters stored in the weights, a tied head and computed buffers left out; None when they are quantized."""
    left_out = {"lm_head.weight"} if tied else set()
    tensors = [t for n, t in source.tensors.items() if n not in left_out and not n.endswith("rotary_emb.inv_freq")]
    if any(t.dtype not in FLOATS for t in tensors):
        return None
    return sum(t.elements for t in tensors)


def human(count: int) -> str:
    """70.6B, 1.24B, 5.40M, 604K."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.3g}{unit}" if count < 1000 * size else f"{count // size:,}{unit}"
    return str(count)
