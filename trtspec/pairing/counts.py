"""Parameter counts of one model: by the architecture's arithmetic from config.json, and from weight headers.

Source of the arithmetic: the modules that transformers 4.57.6 builds for each architecture (`modeling_*.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.tensors import TensorSource

FLOATS = ("F16", "BF16", "F32", "F64")
_LINEARS = 3
"""Matrices of a gated FFN: gate, up and down."""
_NOT_TEXT = re.compile(r"(model\.)?(vision_tower|multi_modal_projector)\.")
_COMPUTED = re.compile(r"rotary_emb\.inv_freq$|\.attn\.(masked_)?bias$")
"""Buffers that old files store: rotary frequencies, and the causal masks of GPT-2 and GPT-J."""


def parameters_by_config(facts: ModelFacts) -> int | None:
    """Parameters that config.json implies: the text model, a tied embedding once. None: architecture not known here."""
    count = _COUNTS.get(facts.architecture)
    return None if count is None else count(facts)


def active_parameters(facts: ModelFacts) -> int | None:
    """Parameters that one token goes through: of a mixture's experts only the chosen ones."""
    total = parameters_by_config(facts)
    if total is None or facts.moe is None:
        return total
    idle = facts.moe.experts - facts.moe.top_k
    return total - sum(facts.moe.layers) * idle * _expert(facts)


def is_exact(architecture: str) -> bool:
    """Whether the count from config.json is exact to the last parameter for every variant of the architecture."""
    return architecture in _COUNTS and architecture != "FalconForCausalLM"


def _expert(facts: ModelFacts) -> int:
    return 0 if facts.moe is None else _LINEARS * facts.hidden_size * facts.moe.intermediate_size


def _attention(facts: ModelFacts) -> int:
    hidden, dim = facts.hidden_size, facts.head_dim
    q, kv = facts.num_attention_heads * dim, facts.num_key_value_heads * dim
    weights = hidden * (2 * q + 2 * kv) + (2 * dim if facts.qk_norm else 0)
    return weights + (q + 2 * kv if facts.qkv_bias else 0) + (hidden if facts.dense_bias else 0)


def _ffn(facts: ModelFacts, layer: int) -> int:
    hidden, inner = facts.hidden_size, facts.intermediate_size
    if facts.moe is not None and facts.moe.layers[layer]:
        return facts.moe.experts * (_expert(facts) + hidden)  # one router row per expert
    return _LINEARS * hidden * inner + (2 * inner + hidden if facts.mlp_bias else 0)


def _gated(facts: ModelFacts, norms: int = 2) -> int:
    """Llama and its relatives: RMS norms without bias, gated FFN, rotary positions."""
    hidden = facts.hidden_size
    layers = sum(_ffn(facts, i) for i in range(facts.num_hidden_layers))
    layers += facts.num_hidden_layers * (_attention(facts) + norms * hidden)
    return _embeddings(facts) + layers + hidden


def _four_norms(facts: ModelFacts) -> int:
    return _gated(facts, norms=4)


def _embeddings(facts: ModelFacts) -> int:
    return facts.vocab_size * facts.hidden_size * (1 if facts.tie_word_embeddings else 2)


def _gpt2(facts: ModelFacts) -> int:
    hidden, inner = facts.hidden_size, facts.intermediate_size
    attention = 4 * hidden * hidden + 4 * hidden
    layer = attention + 2 * hidden * inner + inner + hidden + 4 * hidden
    positions = facts.max_position_embeddings * hidden
    return _embeddings(facts) + positions + facts.num_hidden_layers * layer + 2 * hidden


def _gptj(facts: ModelFacts) -> int:
    hidden, inner = facts.hidden_size, facts.intermediate_size
    layer = 4 * hidden * hidden + 2 * hidden * inner + inner + hidden + 2 * hidden
    head_bias = 0 if facts.tie_word_embeddings else facts.vocab_size
    return _embeddings(facts) + head_bias + facts.num_hidden_layers * layer + 2 * hidden


def _falcon(facts: ModelFacts) -> int:
    hidden, inner, kv_heads = facts.hidden_size, facts.intermediate_size, facts.num_key_value_heads
    # Two norms a layer in the newer architecture, which is the one with grouped key-value heads.
    norms = 1 if kv_heads in (1, facts.num_attention_heads) else 2
    mlp = 2 * hidden * inner + (inner + hidden if facts.mlp_bias else 0)
    return _embeddings(facts) + facts.num_hidden_layers * (_attention(facts) + mlp + 2 * norms * hidden) + 2 * hidden


_COUNTS: dict[str, Callable[[ModelFacts], int]] = {
    "LlamaForCausalLM": _gated,
    "MistralForCausalLM": _gated,
    "MixtralForCausalLM": _gated,
    "Qwen2ForCausalLM": _gated,
    "Qwen3ForCausalLM": _gated,
    "Qwen3MoeForCausalLM": _gated,
    "Phi3ForCausalLM": _gated,
    "GemmaForCausalLM": _gated,
    "Gemma2ForCausalLM": _four_norms,
    "Gemma3ForCausalLM": _four_norms,
    "Gemma3ForConditionalGeneration": _four_norms,
    "GPT2LMHeadModel": _gpt2,
    "GPTJForCausalLM": _gptj,
    "FalconForCausalLM": _falcon,
}
COUNTED = tuple(_COUNTS)
"""Architectures whose size follows from config.json."""


def parameters_by_headers(source: TensorSource, tied: bool) -> int | None:
    """Parameters stored in the weights; None when they are quantized.

    Left out: a tied head, computed buffers, and what belongs to images in a multimodal model.
    """
    tensors = [t for n, t in source.tensors.items() if _counts(n, tied)]
    if any(t.dtype not in FLOATS for t in tensors):
        return None
    return sum(t.elements for t in tensors)


def _counts(name: str, tied: bool) -> bool:
    if tied and name.endswith("lm_head.weight"):
        return False
    return not _NOT_TEXT.match(name) and not _COMPUTED.search(name)


def human(count: int) -> str:
    """70.6B, 1.24B, 5.40M, 604K."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{unit}" if count < 999.5 * size else f"{count / size:,.0f}{unit}"
    return str(count)
