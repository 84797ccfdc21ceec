"""config.json of GPT-2, GPT-J and Falcon in the key names that the other families share.

They cannot be converted, but their sizes can be known. Source: transformers 4.57.6, `attribute_map` and defaults of
`models/{gpt2,gptj,falcon}/configuration_*.py`; Falcon's key-value heads: `FalconAttention` in `modeling_falcon.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_GPT = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_positions": "max_position_embeddings",
    "n_inner": "intermediate_size",
    "activation_function": "hidden_act",
}
_NAMES: dict[str, dict[str, str]] = {
    "gpt2": _GPT,
    "gptj": _GPT,
    "falcon": {
        "ffn_hidden_size": "intermediate_size",
        "num_kv_heads": "num_key_value_heads",
        "activation": "hidden_act",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
    },
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gpt2": {"tie_word_embeddings": True, "max_position_embeddings": 1024},
    "gptj": {"tie_word_embeddings": False, "max_position_embeddings": 2048, "rotary_dim": 64},
    "falcon": {"tie_word_embeddings": True, "max_position_embeddings": 2048, "multi_query": True},
}


def common_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same configuration under common names; that of any other family as it is. Never raises: types are checked
    by whoever reads the values."""
    kind = data.get("model_type")
    if not isinstance(kind, str) or kind not in _NAMES:
        return dict(data)
    names = _NAMES[kind]
    found = dict(_DEFAULTS[kind]) | {names.get(k, k): v for k, v in data.items() if v is not None}
    hidden, heads = found.get("hidden_size"), found.get("num_attention_heads")
    if type(hidden) is int:
        found.setdefault("intermediate_size", 4 * hidden)
    if kind == "gptj":
        found = _turned(found, hidden, heads)
    return _falcon(found) if kind == "falcon" else found


def _turned(found: dict[str, Any], hidden: Any, heads: Any) -> dict[str, Any]:
    turned = found.pop("rotary_dim")
    if type(turned) is int and type(hidden) is int and type(heads) is int and 0 < turned * heads <= hidden:
        found.setdefault("partial_rotary_factor", turned * heads / hidden)
    return found


def _falcon(found: dict[str, Any]) -> dict[str, Any]:
    bias = found.get("bias", False)
    found = {"attention_bias": bias, "mlp_bias": bias} | found
    if found["multi_query"] is True and found.get("new_decoder_architecture") is not True:
        found["num_key_value_heads"] = 1
    return found
