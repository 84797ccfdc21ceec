"""The model part of config.json: what each family's keys mean, and which values are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtspec.backends.reference.keys import Keys
from trtspec.backends.reference.modelconfig import ARCHITECTURES, ModelConfig, model_config
from trtspec.errors import ModelFileError

GOOD: dict[str, Any] = {
    "architecture": "LlamaForCausalLM",
    "hidden_size": 32,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
MOE = {"num_experts": 8, "top_k": 2, "normalization_mode": 1}


def read(**changes: Any) -> ModelConfig:
    return model_config(Keys(GOOD | changes, Path("config.json")))


def test_a_plain_llama() -> None:
    model = read()
    assert (model.activation, model.windows, model.experts, model.ranks) == ("silu", (), None, 1)
    assert (model.head_norms, model.inter_norms, model.scaled_embeddings, model.fused_ffn) == (False,) * 4
    assert model.plain_weights
    assert not model.emulated
    assert model.rotary_dim is None


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_follows_from_the_architecture(architecture: str) -> None:
    model = read(architecture=architecture)
    assert model.scaled_embeddings == architecture.startswith("Gemma")
    assert model.inter_norms == (architecture in ("Gemma2ForCausalLM", "Gemma3ForCausalLM"))
    assert model.fused_ffn == (architecture == "Phi3ForCausalLM")


def test_parameters_are_those_of_one_step() -> None:
    per_layer = 64 * 32 + 32 * 32
    assert read().parameters == 6 * (per_layer + 3 * 48 * 32) + 50 * 32
    sparse = read(moe=MOE, moe_intermediate_size=20, mlp_only_layers=[0, 1])
    assert sparse.parameters == 6 * per_layer + 3 * 32 * (2 * 48 + 4 * 2 * 20) + 50 * 32


@pytest.mark.parametrize(
    ("name", "meaning"),
    [("silu", "silu"), ("swiglu", "silu"), ("gelu_pytorch_tanh", "gelu"), ("gelu", "gelu"), ("geglu", "gelu")],
)
def test_activations(name: str, meaning: str) -> None:
    assert read(hidden_act=name).activation == meaning


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"layer_windows": [None, 5, None, 5, None, 5]}, (None, 5, None, 5, None, 5)),
        ({"layer_windows": [None] * 6}, ()),
        ({"layer_windows": [None, 5, None, 5, None, 5], "sliding_window": 9}, (None, 5, None, 5, None, 5)),
        ({"sliding_window": 7, "architecture": "MistralForCausalLM"}, (7,) * 6),
        ({"sliding_window": 7, "architecture": "Gemma2ForCausalLM"}, (7, None) * 3),
        ({"sliding_window": 7, "architecture": "Gemma3ForCausalLM"}, (7, 7, 7, 7, 7, None)),
        (
            {"sliding_window": 7, "architecture": "Gemma3ForCausalLM", "_sliding_window_pattern": 3},
            (7, 7, None, 7, 7, None),
        ),
        ({"sliding_window": None}, ()),
    ],
)
def test_windows(changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert read(**changes).windows == windows


def test_experts() -> None:
    model = read(moe=MOE, moe_intermediate_size=20, decoder_sparse_step=2, mlp_only_layers=[3])
    experts = model.experts
    assert experts is not None
    assert (experts.count, experts.top_k, experts.intermediate, experts.normalize) == (8, 2, 20, True)
    assert experts.sparse == (False, True, False, False, False, True)
    mixtral = read(moe=MOE | {"normalization_mode": 0}).experts
    assert mixtral is not None
    assert (mixtral.intermediate, mixtral.normalize, all(mixtral.sparse)) == (48, False, True)
    assert read(moe={"num_experts": 0}).experts is None


@pytest.mark.parametrize(
    ("changes", "dim"),
    [({"rotary_pct": 0.5}, 4), ({"rotary_embedding_dim": 4}, 4), ({"rotary_embedding_dim": 8}, None), ({}, None)],
)
def test_partly_turned_heads(changes: dict[str, Any], dim: int | None) -> None:
    assert read(**changes).rotary_dim == dim


@pytest.mark.parametrize(
    ("scaling", "top", "reach", "original"),
    [
        (None, {}, 128, None),
        ({"rope_type": "linear", "factor": 2.5}, {}, 320, None),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, {}, 256, 64),
        ({"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}, {}, 128, 64),
        ({"rope_type": "dynamic", "factor": 2.0}, {}, 256, None),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16}, {}, 128, 16),
        ({"rope_type": "longrope", "factor": 4.0}, {"original_max_position_embeddings": 32}, 128, 32),
    ],
)
def test_how_far_positions_reach(
    scaling: dict[str, Any] | None, top: dict[str, int], reach: int, original: int | None
) -> None:
    model = read(rotary_scaling=scaling, **top)
    assert (model.max_positions, model.trained_positions, model.original_positions) == (reach, 128, original)


@pytest.mark.parametrize(
    ("quantization", "mapping", "plain", "emulated"),
    [
        ({"quant_algo": None}, {}, True, False),
        ({"quant_algo": "NO_QUANT"}, {"tp_size": 1}, True, False),
        ({"quant_algo": "FP8"}, {}, False, True),
        ({"kv_cache_quant_algo": "INT8"}, {}, False, True),
        ({}, {"tp_size": 2, "pp_size": 2, "world_size": 4}, False, False),
        ({}, {"tp_size": 2}, False, False),
    ],
)
def test_formats_and_ranks(quantization: dict[str, Any], mapping: dict[str, Any], plain: bool, emulated: bool) -> None:
    model = read(quantization=quantization, mapping=mapping)
    assert (model.plain_weights, model.emulated) == (plain, emulated)
    assert model.ranks == mapping.get("tp_size", 1) * mapping.get("pp_size", 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architecture": "FalconForCausalLM"}, "architecture"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type"),
        ({"qk_layernorm": 1}, "qk_layernorm"),
        ({"attn_bias": "yes"}, "attn_bias"),
        ({"quantization": {"quant_algo": "W4A16_GPTQ"}}, r"quantization\.quant_algo"),
        ({"quantization": {"kv_cache_quant_algo": "NVFP4"}}, r"quantization\.kv_cache_quant_algo"),
        ({"mapping": {"world_size": 3, "tp_size": 2}}, r"mapping\.world_size"),
        ({"mapping": {"cp_size": 2}}, r"mapping\.cp_size"),
        ({"mapping": {"moe_ep_size": 2}}, r"mapping\.moe_ep_size"),
        ({"num_key_value_heads": 3}, "heads do not fit"),
        ({"rotary_embedding_dim": 3}, "rotary_embedding_dim"),
        ({"rotary_embedding_dim": 10}, "rotary_embedding_dim"),
        ({"rotary_embedding_dim": 6, "rotary_pct": 0.5}, "rotary_embedding_dim"),
        ({"layer_windows": [5, 5]}, "layer_windows"),
        ({"layer_windows": [0] * 6}, "layer_windows"),
        ({"layer_windows": "all"}, "layer_windows"),
        ({"sliding_window": -1}, "sliding_window"),
        ({"moe": {"num_experts": 4, "top_k": 5}}, r"moe\.top_k"),
        ({"moe": {"num_experts": 4, "top_k": 1, "normalization_mode": 3}}, r"moe\.normalization_mode"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ({"attn_logit_softcapping": "no"}, "attn_logit_softcapping"),
        ({"rotary_scaling": "yarn"}, "rotary_scaling"),
        ({"rotary_scaling": {"rope_type": "yarn", "factor": -1}}, r"rotary_scaling\.factor"),
    ],
)
def test_wrong_values_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        read(**changes)
    assert "config.json" in str(caught.value)


def test_keys_that_are_null_are_absent() -> None:
    keys = Keys(json.loads('{"a": null, "b": {"c": 2.5}, "d": [1]}'), Path("x"))
    assert (keys.integer("a", default=4), keys.flag("a"), keys.optional("a"), keys.items("a")) == (4, False, None, [])
    assert (keys.block("b").number("c"), keys.items("d"), keys.text("a", default="t")) == (2.5, [1], "t")
    with pytest.raises(ModelFileError, match=r"b\.c cannot be used.*an integer"):
        keys.block("b").integer("c")
