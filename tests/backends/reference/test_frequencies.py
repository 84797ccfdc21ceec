"""Inverse frequencies of every scaling type against transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtspec.backends.reference.frequencies import Rope, dynamic_set
from trtspec.errors import ModelFileError

WHERE = Path("config.json")
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHORT, LONG = [1.0 + 0.1 * i for i in range(8)], [2.0 + i for i in range(8)]
LONGROPE = {"rope_type": "longrope", "factor": 4.0, "short_factor": SHORT, "long_factor": LONG}
SCALINGS: dict[str, dict[str, Any] | None] = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn-without-original": {"rope_type": "yarn", "factor": 4.0},
    "yarn-one-step": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0, "beta_slow": 1.9},
    "yarn-smooth": {"rope_type": "yarn", "factor": 4.0, "truncate": False, "beta_fast": 10.0, "beta_slow": 0.5},
    "yarn-mscale": {"rope_type": "yarn", "factor": 4.0, "mscale": 0.5, "mscale_all_dim": 2.0},
    "yarn-attention": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": LONGROPE,
    "longrope-attention": LONGROPE | {"attention_factor": 1.25},
}


def rope(scaling: dict[str, Any] | None, dim: int = 16, original: int | None = None) -> Rope:
    inside = (scaling or {}).get("original_max_position_embeddings")
    return Rope(500.0, dim, scaling or {}, 256, original or inside, WHERE)


def theirs(scaling: dict[str, Any] | None, length: int | None = None, **top: Any) -> tuple[Any, float]:
    """transformers' frequencies and factor for a head of 16."""
    pytest.importorskip("torch")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = (scaling or {}).get("rope_type", "default")
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, head_dim=16, rope_theta=500.0, max_position_embeddings=256,
        rope_scaling=scaling, **top,
    )  # fmt: skip
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    return frequencies.numpy(), factor


@pytest.mark.torch
@pytest.mark.parametrize("name", SCALINGS)
def test_equal_transformers(name: str) -> None:
    scaling = SCALINGS[name]
    sets, factor = rope(scaling).sets()
    expected, expected_factor = theirs(scaling)
    np.testing.assert_allclose(sets[0], expected, rtol=2e-6)
    assert factor == pytest.approx(expected_factor, rel=1e-6)
    assert len(sets) == (2 if name.startswith("longrope") else 1)


@pytest.mark.torch
def test_longropes_long_set_and_its_factor_from_the_lengths() -> None:
    scaling = {k: v for k, v in LONGROPE.items() if k != "factor"}
    sets, factor = rope(scaling, original=64).sets()
    for found, length in zip(sets, (64, 65), strict=True):
        expected, expected_factor = theirs(scaling, length, original_max_position_embeddings=64)
        np.testing.assert_allclose(found, expected, rtol=2e-6)
        assert factor == pytest.approx(expected_factor, rel=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("length", [256, 257, 300, 1000])
def test_dynamic_sets_follow_the_length(length: int) -> None:
    scaling = SCALINGS["dynamic"]
    found = dynamic_set(rope(scaling), length)
    np.testing.assert_allclose(found, theirs(scaling, length)[0], rtol=1e-5)


def test_boundaries() -> None:
    assert rope(LONGROPE).boundary == 256
    assert rope(LONGROPE, original=64).boundary == 64
    assert rope(LLAMA3).boundary is None
    assert rope(LONGROPE | {"rope_type": "su"}).kind == "longrope"


def test_the_older_spelling_of_the_type() -> None:
    old, plain = rope({"type": "linear", "factor": 2.0}).sets(), rope(None).sets()
    np.testing.assert_array_equal(old[0][0] * 2, plain[0][0])


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "mrope"}, "not supported.*found mrope.*expected default or linear"),
        ({"rope_type": "linear"}, "'factor' is missing"),
        ({"rope_type": "linear", "factor": "two"}, "linear cannot be used"),
        ({"rope_type": "linear", "factor": True}, "factor is True"),
        ({"rope_type": "dynamic"}, "'factor' is missing"),
        ({"rope_type": "yarn", "factor": 0}, "factor is 0, not a positive number"),
        ({k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}, "'low_freq_factor' is missing"),
        (LLAMA3 | {"high_freq_factor": 1.0}, "low_freq_factor is not below"),
        ({k: v for k, v in LONGROPE.items() if k != "long_factor"}, "'long_factor' is missing"),
        (LONGROPE | {"short_factor": SHORT[1:]}, "short_factor is not a list of 8"),
        (LONGROPE | {"long_factor": [0.0] * 8}, "long_factor is not a list of 8 positive numbers"),
        (LONGROPE | {"long_factor": "many"}, "longrope cannot be used"),
    ],
)
def test_unusable_scalings_are_refused(scaling: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words) as caught:
        rope(scaling).sets()
    assert "rotary_scaling" in str(caught.value)
    assert "config.json" in str(caught.value)
