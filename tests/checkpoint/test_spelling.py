"""GPT-2, GPT-J and Falcon under common names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.spelling import common_names

GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12,
        "n_head": 12, "n_positions": 1024, "n_inner": None, "activation_function": "gelu_new"}  # fmt: skip
GPTJ = GPT2 | {"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": 4096, "n_head": 16}
FALCON = {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "vocab_size": 65024, "hidden_size": 4544,
          "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": True, "bias": False}  # fmt: skip


def facts(data: dict[str, Any]) -> ModelFacts:
    return ModelFacts.parse(common_names(data), Path("config.json"))


def test_gpt2() -> None:
    found = facts(GPT2)
    assert (found.hidden_size, found.num_hidden_layers, found.intermediate_size) == (768, 12, 3072)
    assert (found.max_position_embeddings, found.tie_word_embeddings) == (1024, True)


def test_gptj_turns_part_of_a_head() -> None:
    found = facts(GPTJ | {"rotary_dim": 64})
    assert (found.head_dim, found.rotary_dim, found.tie_word_embeddings) == (256, 64, False)


@pytest.mark.parametrize(
    ("changes", "kv_heads"),
    [
        ({}, 1),
        ({"num_kv_heads": 71}, 1),  # ignored by the older architecture
        ({"multi_query": False}, 71),
        ({"new_decoder_architecture": True, "num_kv_heads": 71, "hidden_size": 71 * 64}, 71),
        ({"new_decoder_architecture": True, "num_attention_heads": 142, "hidden_size": 142 * 64, "num_kv_heads": 2}, 2),
    ],
)
def test_falcon_key_value_heads(changes: dict[str, Any], kv_heads: int) -> None:
    assert facts(FALCON | changes).num_key_value_heads == kv_heads


def test_other_families_are_left_as_they_are() -> None:
    data = {"model_type": "llama", "n_embd": 4, "hidden_size": 8}
    assert common_names(data) == data


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([GPT2, GPTJ, FALCON]), st.data())
def test_wrong_types_never_raise_here(data: dict[str, Any], draw: st.DataObject) -> None:
    keys = draw.draw(st.lists(st.sampled_from([*data, "rotary_dim", "num_kv_heads", "new_decoder_architecture"])))
    common_names(data | {key: draw.draw(JUNK) for key in keys})
