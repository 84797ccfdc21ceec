"""The table of rotations against the half-rotation formula, and the row order that it expects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtspec.backends.reference.config import ModelConfig
from trtspec.backends.reference.frequencies import Rope, dynamic_set
from trtspec.backends.reference.rope import interleave, inverse_frequencies, rotations

WHERE = Path("x")
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [3.0, 5.0]}


def config(scaling: dict[str, Any] | None = None, head_size: int = 16, **more: Any) -> ModelConfig:
    return ModelConfig(1, 32, 4, 2, head_size, 48, 50, 1e-5, 512, 500.0, scaling, False, False, **more)


@pytest.mark.parametrize("rotary_dim", [None, 12, 4])
def test_rotations_of_interleaved_pairs_are_the_half_rotation(rotary_dim: int | None) -> None:
    size, position = 16, 37
    turned = rotary_dim or size
    c = config(head_size=size, rotary_dim=rotary_dim)
    q, k = np.random.default_rng(0).normal(size=(2, size)).astype(np.float32)
    frequencies = inverse_frequencies(c, WHERE)
    assert frequencies.shape == (turned // 2,)
    cos, sin = np.tile(np.cos(position * frequencies), 2), np.tile(np.sin(position * frequencies), 2)

    def half_rotation(x: np.ndarray) -> np.ndarray:
        head, rest = x[:turned], x[turned:]
        half = turned // 2
        return np.concatenate((head * cos + np.concatenate((-head[half:], head[:half])) * sin, rest))

    def ours(x: np.ndarray) -> np.ndarray:
        pairs = x[interleave(1, size, rotary_dim)].view(np.complex64)
        return (pairs * rotations(c, 64, WHERE)[position]).view(np.float32)

    np.testing.assert_allclose(ours(q) @ ours(k), half_rotation(q) @ half_rotation(k) / np.sqrt(size), rtol=1e-5)
    expected = half_rotation(q)[interleave(1, size, rotary_dim)]
    np.testing.assert_allclose(ours(q) * size**0.25, expected, rtol=1e-5, atol=1e-6)


def test_interleave_keeps_heads_apart() -> None:
    order = interleave(3, 8, 4)
    assert sorted(order) == list(range(24))
    assert order[:8].tolist() == [0, 2, 1, 3, 4, 5, 6, 7]
    np.testing.assert_array_equal(order[8:16], order[:8] + 8)


def test_the_query_scalar_takes_the_place_of_the_head_size() -> None:
    plain, scaled = rotations(config(), 8, WHERE), rotations(config(query_scalar=4.0), 8, WHERE)
    np.testing.assert_allclose(scaled, plain * 2**0.5, rtol=1e-6)


def test_the_attention_factor_is_on_turned_elements_only() -> None:
    yarn = {"rope_type": "yarn", "factor": 1.0, "attention_factor": 3.0}
    table = rotations(config(yarn, rotary_dim=8), 8, WHERE)
    np.testing.assert_allclose(np.abs(table[:, :4]), 3 * 16**-0.25, rtol=1e-6)
    np.testing.assert_allclose(table[:, 4:], 16**-0.25, rtol=1e-6)


def test_longrope_has_a_table_for_each_side() -> None:
    table = rotations(config(LONGROPE, head_size=4, original_positions=8), 20, WHERE)
    assert table.shape == (40, 2)
    plain = Rope.of(config(head_size=4), WHERE).plain()
    angles = np.angle(table)
    np.testing.assert_allclose(angles[1], plain / [1, 2], rtol=1e-5)
    np.testing.assert_allclose(angles[21], plain / [3, 5], rtol=1e-5)


def test_dynamic_turns_each_position_by_its_own_length() -> None:
    c = config({"rope_type": "dynamic", "factor": 2.0}, trained_positions=8)
    table, plain = rotations(c, 12, WHERE), rotations(config(), 12, WHERE)
    np.testing.assert_array_equal(table[:8], plain[:8])
    expected = np.exp(1j * 10 * dynamic_set(Rope.of(c, WHERE), 11).astype(np.float64)) * 16**-0.25
    np.testing.assert_allclose(table[10], expected, rtol=1e-5)
    assert np.abs(table[10] - plain[10]).max() > 1e-2


def test_local_layers_have_their_own_base_and_no_scaling() -> None:
    c = config({"rope_type": "linear", "factor": 8.0}, local_base=100.0)
    local = rotations(c, 8, WHERE, local=True)
    expected = 100.0 ** -(np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(np.angle(local[1]), expected, rtol=1e-5)
    assert not np.allclose(local, rotations(c, 8, WHERE))
    unchanged = rotations(config(), 8, WHERE, local=True)
    np.testing.assert_array_equal(unchanged, rotations(config(), 8, WHERE))
