"""Inverse frequencies against transformers', rotations against the half-rotation formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtspec.backends.reference.config import ModelConfig
from trtspec.backends.reference.rope import interleave, inverse_frequencies, rotations
from trtspec.errors import ModelFileError

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def config(scaling: dict[str, Any] | None, head_size: int = 16) -> ModelConfig:
    return ModelConfig(1, 32, 4, 2, head_size, 48, 50, 1e-5, 512, 500.0, scaling, False, False)


@pytest.mark.torch
@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 4.0}, LLAMA3])
def test_frequencies_equal_transformers(scaling: dict[str, Any] | None) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    theirs = LlamaRotaryEmbedding(
        LlamaConfig(hidden_size=64, num_attention_heads=4, head_dim=16, rope_theta=500.0, rope_scaling=scaling)
    )
    assert "llama3" in ROPE_INIT_FUNCTIONS
    ours = inverse_frequencies(config(scaling), Path("x"))
    np.testing.assert_allclose(ours, theirs.inv_freq.numpy(), rtol=1e-6)


def test_the_older_spelling_of_the_type() -> None:
    old = {"type": "linear", "factor": 2.0}
    np.testing.assert_array_equal(
        inverse_frequencies(config(old), Path("x")) * 2, inverse_frequencies(config(None), Path("x"))
    )


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "yarn", "factor": 2.0},
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": "two"},
        {k: v for k, v in LLAMA3.items() if k != "low_freq_factor"},
        LLAMA3 | {"high_freq_factor": 1.0},
    ],
)
def test_unusable_scalings_are_refused(scaling: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match="rotary_scaling"):
        inverse_frequencies(config(scaling), Path("x"))


def test_rotations_of_interleaved_pairs_are_the_half_rotation() -> None:
    size, position = 16, 37
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, size)).astype(np.float32)
    frequencies = inverse_frequencies(config(None, size), Path("x"))
    cos, sin = np.tile(np.cos(position * frequencies), 2), np.tile(np.sin(position * frequencies), 2)

    def half_rotation(x: np.ndarray) -> np.ndarray:
        return x * cos + np.concatenate((-x[size // 2 :], x[: size // 2])) * sin

    def ours(x: np.ndarray) -> np.ndarray:
        pairs = x[interleave(1, size)].view(np.complex64)
        return (pairs * rotations(config(None, size), 64, Path("x"))[position]).view(np.float32)

    np.testing.assert_allclose(ours(q) @ ours(k), half_rotation(q) @ half_rotation(k) / np.sqrt(size), rtol=1e-5)
    np.testing.assert_allclose(ours(q) * size**0.25, half_rotation(q)[interleave(1, size)], rtol=1e-5, atol=1e-6)
