"""Parameter counts: against the tensors of small models, and against transformers for every architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.models import CONFIG, save, shapes, write_model
from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.spelling import common_names
from trtspec.checkpoint.tensors import TensorSource
from trtspec.pairing.counts import (
    COUNTED,
    active_parameters,
    human,
    is_exact,
    parameters_by_config,
    parameters_by_headers,
)

BASE = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
GPT = {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "rotary_dim": 4}
FALCON = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
EVERY = [
    ("LlamaForCausalLM", "llama", BASE),
    ("LlamaForCausalLM", "llama", BASE | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("MistralForCausalLM", "mistral", BASE | {"head_dim": 16}),
    ("MixtralForCausalLM", "mixtral", BASE | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("Qwen2ForCausalLM", "qwen2", BASE),
    ("Qwen3ForCausalLM", "qwen3", BASE | {"head_dim": 16}),
    ("Qwen3MoeForCausalLM", "qwen3_moe", BASE | MOE | {"head_dim": 16, "mlp_only_layers": [1]}),
    ("Phi3ForCausalLM", "phi3", BASE | {"pad_token_id": 0}),
    ("GemmaForCausalLM", "gemma", BASE | {"head_dim": 16}),
    ("Gemma2ForCausalLM", "gemma2", BASE | {"head_dim": 16}),
    ("Gemma3ForCausalLM", "gemma3_text", BASE | {"head_dim": 16}),
    ("GPT2LMHeadModel", "gpt2", GPT),
    ("GPTJForCausalLM", "gptj", GPT),
    ("FalconForCausalLM", "falcon", FALCON),
    ("FalconForCausalLM", "falcon", FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True, "bias": True}),
]


def facts(architecture: str, model_type: str, data: dict[str, Any]) -> ModelFacts:
    document = {"architectures": [architecture], "model_type": model_type, **data}
    return ModelFacts.parse(common_names(document), Path("config.json"))


@pytest.mark.torch
@pytest.mark.parametrize(("architecture", "model_type", "data"), EVERY, ids=lambda v: v if isinstance(v, str) else "")
def test_counts_equal_those_of_the_model_that_transformers_builds(
    architecture: str, model_type: str, data: dict[str, Any]
) -> None:
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(model_type, **data)
    with torch.device("meta"):
        model = getattr(transformers, architecture)(config)
    model.tie_weights()
    found = facts(architecture, model_type, data)
    assert parameters_by_config(found) == sum(p.numel() for p in model.parameters())


def test_every_counted_architecture_is_compared() -> None:
    # The multimodal Gemma 3 is counted as its text model, which is compared.
    assert {architecture for architecture, _, _ in EVERY} | {"Gemma3ForConditionalGeneration"} == set(COUNTED)


def test_an_unknown_architecture_has_no_count() -> None:
    found = facts("MambaForCausalLM", "mamba", BASE)
    assert (parameters_by_config(found), active_parameters(found)) == (None, None)
    assert not is_exact("MambaForCausalLM")


def test_active_parameters_leave_idle_experts_out() -> None:
    found = facts("Qwen3MoeForCausalLM", "qwen3_moe", BASE | MOE | {"head_dim": 16, "mlp_only_layers": [1]})
    total, active = parameters_by_config(found), active_parameters(found)
    assert total is not None
    assert active == total - 2 * 2 * 3 * 32 * 24  # two sparse layers, two idle experts of three matrices


@pytest.mark.parametrize(
    "changes",
    [{}, {"tie_word_embeddings": True}, {"head_dim": 8}, {"attention_bias": True, "mlp_bias": True}],
    ids=str,
)
def test_config_and_headers_agree(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_model(tmp_path, **changes)
    found = ModelFacts.read(tmp_path)
    names = shapes(CONFIG | changes)
    by_hand = sum(s[0] * (s[1] if len(s) > 1 else 1) for s in names.values())
    assert parameters_by_config(found) == by_hand
    assert parameters_by_headers(TensorSource.open(tmp_path), found.tie_word_embeddings) == by_hand


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("h.0.attn.c_attn.bias", True),
        ("h.0.attn.bias", False),  # the causal mask of old GPT-2 files
        ("model.layers.0.self_attn.rotary_emb.inv_freq", False),
        ("vision_tower.encoder.weight", False),
        ("model.multi_modal_projector.weight", False),
        ("language_model.lm_head.weight", False),  # tied
    ],
)
def test_what_headers_count(tmp_path: Path, name: str, counts: bool) -> None:
    save(tmp_path / "model.safetensors", {name: {"dtype": "F32", "shape": [3], "data": bytes(12)}})
    assert parameters_by_headers(TensorSource.open(tmp_path), tied=True) == (3 if counts else 0)


def test_quantized_weights_have_no_count(tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", {"a.qweight": {"dtype": "I32", "shape": [3], "data": bytes(12)}})
    assert parameters_by_headers(TensorSource.open(tmp_path), tied=True) is None


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (70553706496, "70.6B"),
        (1235814400, "1.24B"),
        (5400000, "5.4M"),
        (999, "999"),
        (625056, "625K"),
        (999885952, "1B"),
    ],
)
def test_human(count: int, shown: str) -> None:
    assert human(count) == shown
