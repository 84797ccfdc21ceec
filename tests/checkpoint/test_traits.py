"""Facts that follow from a model's type: defaults, windows, biases, experts, ropes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.madefamilies import CONFIGS, config_of
from trtspec.checkpoint.facts import ModelFacts, Moe
from trtspec.checkpoint.rope import Rope
from trtspec.checkpoint.traits import TRAITS
from trtspec.errors import ModelFileError

PATH = Path("m/config.json")


def facts(family: str, **changes: Any) -> ModelFacts:
    """Facts of a made family; None removes a key."""
    return ModelFacts.parse({k: v for k, v in config_of(family, **changes).items() if v is not None}, PATH)


@pytest.mark.torch
@pytest.mark.parametrize("model_type", TRAITS)
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    config = transformers.AutoConfig.for_model(model_type)
    for key, value in TRAITS[model_type].defaults.items():
        named = "hidden_activation" if key == "hidden_act" and model_type in ("gemma2", "gemma3_text") else key
        if key != "sliding_window" or "use_sliding_window" not in TRAITS[model_type].defaults:
            assert getattr(config, named) == value, key


WINDOWS: list[tuple[str, dict[str, Any], int | None, list[int | None]]] = [
    ("llama", {"sliding_window": 8}, None, [None, None, None]),
    ("gemma", {"sliding_window": 8, "layer_types": ["sliding_attention"] * 3}, None, [None, None, None]),
    ("mistral", {}, 8, [8, 8, 8]),
    ("mistral", {"sliding_window": None}, 4096, [4096, 4096, 4096]),
    ("phi3", {"sliding_window": 16}, 16, [16, 16, 16]),
    ("qwen2", {"sliding_window": 8}, None, [None, None, None]),
    ("qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, 8, [None, 8, 8]),
    ("qwen3", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}, 8, [None, None, 8]),
    ("qwen3_moe", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}, 8, [8, 8, 8]),
    ("gemma2", {}, 8, [8, None, 8]),
    ("gemma3", {"sliding_window_pattern": 3}, 8, [8, 8, None]),
    ("gemma3", {"_sliding_window_pattern": 2}, 8, [8, None, 8]),
    ("gemma2", {"layer_types": ["full_attention", "full_attention", "sliding_attention"]}, 8, [None, None, 8]),
]


@pytest.mark.parametrize(("family", "changes", "window", "layers"), WINDOWS)
def test_windows(family: str, changes: dict[str, Any], window: int | None, layers: list[int | None]) -> None:
    found = facts(family, **changes)
    assert (found.sliding_window, list(found.layer_windows)) == (window, layers)


def test_null_is_not_the_default() -> None:
    found = ModelFacts.parse(config_of("mistral", sliding_window=None), PATH)
    assert found.sliding_window is None


@pytest.mark.parametrize(
    ("family", "changes", "qkv", "dense"),
    [
        ("llama", {}, False, False),
        ("llama", {"attention_bias": True}, True, True),
        ("qwen2", {}, True, False),
        ("qwen3", {"attention_bias": True}, True, True),
        ("mistral", {"attention_bias": True}, False, False),
        ("phi3", {}, False, False),
        ("gemma3", {}, False, False),
    ],
)
def test_biases(family: str, changes: dict[str, Any], qkv: bool, dense: bool) -> None:
    found = facts(family, **changes)
    assert (found.qkv_bias, found.dense_bias) == (qkv, dense)


def test_experts() -> None:
    assert facts("llama").moe is None
    assert facts("mixtral").moe == Moe(4, 2, 48, True, (True, True, True))
    assert facts("qwen3_moe").moe == Moe(4, 2, 16, True, (True, False, True))
    every_second = facts("qwen3_moe", decoder_sparse_step=2, mlp_only_layers=None, norm_topk_prob=None)
    assert every_second.moe == Moe(4, 2, 16, False, (False, True, False))


def test_gemmas() -> None:
    one, two, three = facts("gemma"), facts("gemma2"), facts("gemma3")
    assert all(f.norm_plus_one and f.embed_scale for f in (one, two, three))
    assert (one.query_scalar, two.query_scalar, three.query_scalar) == (None, 16.0, 16.0)
    assert (two.attn_softcap, two.final_softcap, three.attn_softcap) == (50.0, 30.0, None)
    # Gemma3Attention keeps attn_logit_softcapping and never passes it on.
    assert facts("gemma3", attn_logit_softcapping=50.0, final_logit_softcapping=30.0).attn_softcap is None
    assert facts("gemma3", attn_logit_softcapping=50.0, final_logit_softcapping=30.0).final_softcap == 30.0
    assert (one.rope_local, two.rope_local, three.rope_local) == (None, None, Rope(10000.0, "default", {}))
    assert [f.qk_norm for f in (one, two, three)] == [False, False, True]


def test_partial_rotary_in_both_places() -> None:
    assert facts("phi3").rotary_dim == 4
    inside = facts("phi3", partial_rotary_factor=None, rope_parameters={"partial_rotary_factor": 0.5})
    assert (inside.partial_rotary_factor, inside.rope.parameters) == (0.5, {})
    with pytest.raises(ModelFileError, match="partial_rotary_factor disagrees"):
        facts("phi3", rope_parameters={"partial_rotary_factor": 0.75})


def test_original_length_in_both_places() -> None:
    inside = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
    assert facts("llama", rope_scaling=inside).original_max_position_embeddings == 64
    assert facts("llama", original_max_position_embeddings=32).original_max_position_embeddings == 32
    with pytest.raises(ModelFileError, match="original_max_position_embeddings"):
        facts("llama", rope_scaling={**inside, "original_max_position_embeddings": "64"})


def test_old_names_of_longrope() -> None:
    factors = {"short_factor": [1.0], "long_factor": [2.0]}
    assert facts("llama", rope_scaling={"type": "su", **factors}).rope.type == "longrope"
    assert facts("phi3", rope_scaling={"type": "yarn", **factors}).rope.type == "longrope"
    assert facts("qwen2", rope_scaling={"type": "yarn", "factor": 2.0}).rope.type == "yarn"


def test_a_default_theta_is_no_disagreement() -> None:
    found = facts("mixtral", rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
    assert found.rope.theta == 5000.0
    assert facts("mixtral", rope_theta=None).rope.theta == 1e6


def test_text_part_of_a_multimodal_model() -> None:
    text = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "sliding_window": 32,
        "eos_token_id": None,
    }
    found = ModelFacts.parse(
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
            "eos_token_id": [1, 106], "text_config": text, "vision_config": {"hidden_size": 1152},
        },
        PATH,
    )  # fmt: skip
    assert found.multimodal
    assert (found.model_type, found.architecture) == ("gemma3_text", "Gemma3ForConditionalGeneration")
    assert (found.hidden_size, found.vocab_size, found.head_dim, found.num_key_value_heads) == (64, 262_208, 256, 4)
    assert (found.dtype, found.eos_ids, found.tie_word_embeddings) == ("bfloat16", (1, 106), True)
    assert not facts("llama").multimodal


def test_a_type_that_is_not_listed_is_believed() -> None:
    config = {**config_of("llama"), "model_type": "stablelm", "sliding_window": 8, "attention_bias": True}
    found = ModelFacts.parse(config, PATH)
    assert (found.layer_windows, found.qkv_bias, found.moe) == ((8, 8, 8), True, None)
    assert "stablelm" not in TRAITS
    assert {c["model_type"] for c in CONFIGS.values()} == set(TRAITS)
