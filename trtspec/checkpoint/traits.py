"""What a `model_type` means beyond the keys of its config.json: defaults, and rules that the file does not state.

Source: transformers 4.57.6, `models/<type>/configuration_<type>.py` (defaults: a published config.json may leave
them out, as Gemma 3's text_config does) and `modeling_<type>.py` (biases, norms, windows).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Windows = Literal["none", "every", "upper", "pattern"]
"""Which layers have the sliding window when config.json has no layer_types: none whatever it says, every one,
those from max_window_layers on, or all but each n-th."""


@dataclass(frozen=True)
class Traits:
    """One model type. The defaults of this class are those of an unknown one: believe config.json."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of keys that may be absent. A key that is null stays null."""
    windows: Windows = "every"
    layer_types: bool = True
    """Whether `layer_types` in config.json is obeyed."""
    window_pattern: int = 1
    """With `pattern`: each n-th layer sees everything."""
    qkv_bias: bool | None = None
    """Bias on q, k and v; None: as attention_bias says."""
    dense_bias: bool | None = None
    """Bias on the attention's output; None: as attention_bias says."""
    qk_norm: bool = False
    gemma: bool = False
    """Embeddings times sqrt(hidden size), norm weights plus one."""
    softcaps: bool = False
    """Reads query_pre_attn_scalar and final_logit_softcapping."""
    attention_softcap: bool = False
    """Reads attn_logit_softcapping. Gemma 3 has the key, but its attention does not obey it."""
    experts: str | None = None
    """Key of the number of experts, for a mixture of experts."""
    rope_aliases: Mapping[str, str] = field(default_factory=dict)
    """Old names of rope types."""


_WINDOW_OFF = {"sliding_window": 4096, "use_sliding_window": False}
_QWEN_WINDOW = {**_WINDOW_OFF, "max_window_layers": 28}
_GEMMA = {
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
}
_GEMMA3_TEXT = {
    **_GEMMA,
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_GEMMA2 = {
    **_GEMMA,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
    "sliding_window": 4096,
}
_QWEN3_MOE = {
    **_WINDOW_OFF,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": False,
    "decoder_sparse_step": 1,
}
_PHI_ROPE = {"su": "longrope", "yarn": "longrope"}

TRAITS: Mapping[str, Traits] = {
    "llama": Traits(windows="none", layer_types=False),
    "mistral": Traits(
        {"num_key_value_heads": 8, "sliding_window": 4096}, layer_types=False, qkv_bias=False, dense_bias=False
    ),
    "mixtral": Traits(
        {
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1_000_000.0,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        },
        layer_types=False,
        experts="num_local_experts",
        qkv_bias=False,
        dense_bias=False,
    ),
    "qwen2": Traits(_QWEN_WINDOW, windows="upper", qkv_bias=True, dense_bias=False),
    "qwen3": Traits({"head_dim": 128, **_QWEN_WINDOW}, windows="upper", qk_norm=True),
    "qwen3_moe": Traits(_QWEN3_MOE, layer_types=False, qk_norm=True, experts="num_experts"),
    "gemma": Traits({**_GEMMA, "num_key_value_heads": 16}, windows="none", layer_types=False, gemma=True),
    "gemma2": Traits(_GEMMA2, windows="pattern", window_pattern=2, gemma=True, softcaps=True, attention_softcap=True),
    "gemma3_text": Traits(_GEMMA3_TEXT, windows="pattern", window_pattern=6, qk_norm=True, gemma=True, softcaps=True),
    "phi3": Traits(
        {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
        layer_types=False,
        rope_aliases=_PHI_ROPE,
        qkv_bias=False,
        dense_bias=False,
    ),
}
TEXT_TYPES = {"gemma3": "gemma3_text"}
"""Type of the text part of a multimodal model whose text_config does not name its own."""


def traits_of(model_type: str) -> Traits:
    """The traits of a model type; of an unknown one those that believe config.json."""
    return TRAITS.get(model_type, Traits())
