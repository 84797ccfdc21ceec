"""What each family writes into config.json, from both spellings of transformers, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.madefamilies import CONFIGS, arrays, config_of, shapes, stored, write_family
from tests.checkpoint.merged import expected, merge
from tests.checkpoint.models import write_weights
from trtspec.checkpoint.convert import convert
from trtspec.checkpoint.families import FAMILIES
from trtspec.checkpoint.plan import plan_conversion
from trtspec.errors import ModelFileError

SHORT, LONG = [1.0, 1.5], [4.0, 8.0]
EXPECTED: dict[str, dict[str, Any]] = {
    "llama": {"hidden_act": "silu", "attn_bias": False, "mlp_bias": False, "qk_layernorm": False, "rotary_pct": 1.0},
    "llama-biased": {"attn_bias": True, "mlp_bias": True},
    "mistral": {"architecture": "MistralForCausalLM", "sliding_window": 8, "layer_windows": [8, 8, 8]},
    "mixtral": {
        "hidden_act": "swiglu",
        "moe": {"num_experts": 4, "top_k": 2, "normalization_mode": 1},
    },
    "qwen2": {"qwen_type": "qwen2", "attn_bias": True, "qk_layernorm": False},
    "qwen3": {"qwen_type": "qwen3", "attn_bias": False, "qk_layernorm": True, "share_embedding_table": False},
    "qwen3_moe": {
        "qwen_type": "qwen3_moe",
        "hidden_act": "swiglu",
        "moe": {"num_experts": 4, "top_k": 2, "normalization_mode": 1},
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 0,
        "mlp_only_layers": [1],
        "decoder_sparse_step": 1,
    },
    "gemma": {"hidden_act": "gelu_pytorch_tanh", "inter_layernorms": False, "share_embedding_table": True},
    "gemma2": {
        "inter_layernorms": True,
        "query_pre_attn_scalar": 16,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "layer_windows": [8, None, 8],
    },
    "gemma3": {
        "qk_layernorm": True,
        "inter_layernorms": True,
        "attn_logit_softcapping": None,
        "rope_local_base_freq": 10000.0,
        "rotary_base": 10000.0,
        "_sliding_window_pattern": 6,
        "sliding_window": 8,
        "layer_windows": [8, 8, 8],
    },
    "phi3": {"hidden_act": "swiglu", "rotary_pct": 0.5, "rotary_embedding_dim": 4},
}


def document(folder: Path, family: str, **changes: Any) -> dict[str, Any]:
    write_family(folder, family, **changes)
    return plan_conversion(folder).config


@pytest.mark.parametrize("family", CONFIGS)
def test_keys(tmp_path: Path, family: str) -> None:
    found = document(tmp_path, family)
    assert {key: found[key] for key in EXPECTED[family]} == EXPECTED[family]
    assert found["architecture"] == CONFIGS[family]["architectures"][0]
    assert ("layer_windows" in found) == ("layer_windows" in EXPECTED[family])
    json.dumps(found, allow_nan=False)


def test_every_family_is_in_the_tests() -> None:
    tested = {config["architectures"][0] for config in CONFIGS.values()} | {"Gemma3ForConditionalGeneration"}
    assert tested == {name for family in FAMILIES for name in family.architectures}


ROPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "linear": ("llama", {"factor": 2.0}, {"factor": 2.0}),
    "dynamic": ("llama", {"factor": 2.0}, {"factor": 2.0, "original_max_position_embeddings": 128}),
    "yarn": (
        "qwen3",
        {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16, "truncate": False},
        {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0, "truncate": False},
    ),
    "llama3": (
        "llama",
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    ),
    "longrope": (
        "phi3",
        {"short_factor": SHORT, "long_factor": LONG},
        {"short_factor": SHORT, "long_factor": LONG, "factor": 4.0, "original_max_position_embeddings": 32},
    ),
}


@pytest.mark.parametrize("kind", ROPES)
def test_rope_in_both_spellings(tmp_path: Path, kind: str) -> None:
    family, given, wanted = ROPES[kind]
    outer = {"original_max_position_embeddings": 32} if kind == "longrope" else {}
    four = document(tmp_path / "4", family, rope_scaling={"type": kind, **given}, rope_theta=5e5, **outer)
    inside = {"rope_type": kind, "rope_theta": 5e5, **given, **outer}
    if family == "phi3":
        inside["partial_rotary_factor"] = 0.5
    five = document(
        tmp_path / "5", family, rope_parameters=inside, rope_theta=None, torch_dtype=None, dtype="float32",
        partial_rotary_factor=None,
    )  # fmt: skip
    assert four == five
    assert four["rotary_scaling"] == {"rope_type": kind, **wanted}
    assert four["rotary_base"] == 5e5
    assert four["position_embedding_type"] == ("long_rope" if kind == "longrope" else "rope_gpt_neox")


def test_longrope_as_tensorrt_llm_wants_it(tmp_path: Path) -> None:
    rope = {"type": "su", "short_factor": SHORT, "long_factor": LONG}
    found = document(tmp_path, "phi3", rope_scaling=rope, original_max_position_embeddings=32)
    assert found["longrope_scaling_short_factors"] == SHORT
    assert found["longrope_scaling_long_factors"] == LONG
    assert found["original_max_position_embeddings"] == 32


def test_gemma3_of_transformers_5_has_a_set_per_layer_type(tmp_path: Path) -> None:
    sets = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    five = document(tmp_path / "5", "gemma3", rope_parameters=sets, rope_theta=None, layer_types=kinds)
    four = document(
        tmp_path / "4", "gemma3", rope_scaling={"rope_type": "linear", "factor": 8.0}, rope_theta=1e6,
        rope_local_base_freq=1e4, sliding_window_pattern=2,
    )  # fmt: skip
    assert four == five
    assert (four["rotary_base"], four["rope_local_base_freq"]) == (1e6, 1e4)
    assert four["layer_windows"] == [8, None, 8]
    assert four["_sliding_window_pattern"] == 2


def test_irregular_windows_are_written_and_warned_of(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    write_family(tmp_path, "gemma3", layer_types=kinds)
    plan = plan_conversion(tmp_path)
    assert plan.config["layer_windows"] == [None, 8, 8]
    assert any("every n-th layer" in line for line in plan.warnings)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"rope_scaling": {"rope_type": "mrope"}}, "rope type 'mrope' is not supported for LlamaForCausalLM"),
    ("phi3", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type 'linear' is not supported for Phi3"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is not for this architecture"),
    ("phi3", {"partial_rotary_factor": 0.4}, "of a head of 8 turns 3 elements"),
    ("phi3", {"partial_rotary_factor": 2.0}, "partial_rotary_factor is above 1"),
    ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": [1.0]}}, "long_factor"),
    ("gemma2", {"hidden_activation": "silu"}, "hidden_act is not that of a Gemma2"),
    ("qwen3_moe", {"num_experts_per_tok": 9}, "num_experts_per_tok is above the 4 experts"),
    ("gemma3", {"layer_types": ["chunked_attention"] * 3}, "layer_types does not describe 3 layers"),
    ("gemma3", {"rope_parameters": {"chunked_attention": {}}}, "unknown layer type"),
    ("llama", {"architectures": ["Llama4ForCausalLM"]}, "architecture Llama4ForCausalLM cannot be converted"),
]


@pytest.mark.parametrize(("family", "changes", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_what_cannot_be_expressed_is_named(tmp_path: Path, family: str, changes: dict[str, Any], message: str) -> None:
    tmp_path.joinpath("config.json").write_text(json.dumps(config_of(family, **changes)))
    write_weights(tmp_path, stored(arrays(config_of(family))))
    with pytest.raises(ModelFileError, match=message):
        plan_conversion(tmp_path)


@pytest.mark.parametrize("family", CONFIGS)
def test_a_tensor_nobody_maps_is_named(tmp_path: Path, family: str) -> None:
    write_family(tmp_path, family)
    values = arrays(config_of(family))
    values["model.layers.0.self_attn.sinks"] = values["model.norm.weight"]
    write_weights(tmp_path, stored(values))
    with pytest.raises(ModelFileError, match=r"'model.layers.0.self_attn.sinks' has no place"):
        plan_conversion(tmp_path)


def write_multimodal(folder: Path, prefix: str, vision: str) -> dict[str, Any]:
    """The published form: a sparse text_config, the vision tower beside it. Returns the text model's tensors."""
    text = {k: v for k, v in config_of("gemma3").items() if k not in ("architectures", "torch_dtype", "rms_norm_eps")}
    outer = {
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "float32",
        "eos_token_id": [1, 106], "text_config": text, "vision_config": {"hidden_size": 8},
    }  # fmt: skip
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(outer))
    values = arrays(config_of("gemma3"), prefix=prefix)
    towers = {
        f"{vision}.patch.weight": values[f"{prefix}norm.weight"],
        f"{vision}.patch.bias": values[f"{prefix}norm.weight"],
    }
    write_weights(folder, stored(values | towers))
    return values


def test_an_exact_gelu_is_a_warning(tmp_path: Path) -> None:
    """transformers 4.57 looks at hidden_act alone; early Gemma files say gelu there and mean the tanh form."""
    write_family(tmp_path, "gemma", hidden_activation=None, hidden_act="gelu")
    (line,) = plan_conversion(tmp_path).warnings
    assert "its tanh form" in line
    write_family(tmp_path, "gemma")
    assert plan_conversion(tmp_path).warnings == ()


@pytest.mark.parametrize(
    ("prefix", "vision"),
    [("language_model.model.", "vision_tower"), ("model.language_model.", "model.vision_tower")],
)
def test_text_of_a_multimodal_gemma(tmp_path: Path, prefix: str, vision: str) -> None:
    values = write_multimodal(tmp_path / "m", prefix, vision)
    (tmp_path / "out").mkdir()
    result = convert(tmp_path / "m", tmp_path / "out", tensor=2, pipeline=2)
    assert result.config["architecture"] == "Gemma3ForCausalLM"
    assert result.warnings == (f"only the text model is converted: 2 tensors under {vision}. are left out",)
    wanted, found = expected(values, config_of("gemma3"), prefix), merge(tmp_path / "out")
    assert {n: v.tobytes() for n, v in wanted.items()} == {n: v.tobytes() for n, v in found.items()}


@pytest.mark.torch
def test_shapes_of_the_made_families_are_those_of_transformers() -> None:
    """The tests above would prove nothing about names that no real model has."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    for config in (config_of(family) for family in CONFIGS):
        kind = getattr(transformers, config["architectures"][0])
        with torch.device("meta"):
            made = kind(kind.config_class(**{k: v for k, v in config.items() if k != "torch_dtype"}))
        theirs = {name: tuple(t.shape) for name, t in made.state_dict().items()}
        if config["tie_word_embeddings"]:
            theirs.pop("lm_head.weight")
        assert theirs == shapes(config), config["model_type"]
