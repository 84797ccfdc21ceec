"""config.json of a checkpoint: what every family has. Keys: TensorRT-LLM 1.2.1, models/modeling_utils.py
(PretrainedConfig); docs/adding-a-family.md lists them with those of each family."""

from __future__ import annotations

from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.families.base import Family
from trtspec.checkpoint.families.rotary import rotary_settings
from trtspec.checkpoint.layout import Layout
from trtspec.errors import ModelFileError


def checkpoint_config(facts: ModelFacts, family: Family, layout: Layout, head: bool) -> dict[str, Any]:
    """The document without `dtype`, which follows from the weights. `head`: a head tensor is in the last rank.

    ModelFileError: config.json asks for something the family cannot express.
    """
    if facts.hidden_act not in family.activations:
        raise ModelFileError(
            f"hidden_act is not that of a {facts.architecture}",
            where=facts.path,
            found=facts.hidden_act,
            expected=" | ".join(family.activations),
        )
    return {
        "architecture": family.architectures[facts.architecture],
        "dtype": None,
        "logits_dtype": "float32",
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_hidden_layers": facts.num_hidden_layers,
        "num_attention_heads": facts.num_attention_heads,
        "num_key_value_heads": facts.num_key_value_heads,
        "head_size": facts.head_dim,
        "hidden_act": family.activation,
        "norm_epsilon": facts.norm_epsilon,
        "max_position_embeddings": facts.max_position_embeddings,
        "qk_layernorm": facts.qk_norm,
        "attn_bias": facts.qkv_bias,
        "use_parallel_embedding": layout.tensor > 1,
        "embedding_sharding_dim": 0,
        "share_embedding_table": not head,
        **rotary_settings(facts, family.rope_types, family.partial_rotary),
        **_windows(facts),
        **family.settings(facts),
        "mapping": layout.mapping(),
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }


def _windows(facts: ModelFacts) -> dict[str, Any]:
    # `layer_windows` is ours: upstream takes windows at run time (max_attention_window) and keeps unknown keys.
    if not any(facts.layer_windows):
        return {}
    return {"sliding_window": facts.sliding_window, "layer_windows": list(facts.layer_windows)}
