"""Tensors cut for ranks by the converter's rules and merged back by the reader's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.checkpoint.families.base import Part
from trtspec.checkpoint.header import TensorInfo
from trtspec.checkpoint.layout import Cut
from trtspec.checkpoint.merge import merged
from trtspec.checkpoint.pieces import Piece

RNG = np.random.default_rng(0)
LAYER = "transformer.layers.0."


def pieces(parts: list[tuple[Part, np.ndarray]], tp: int) -> list[np.ndarray]:
    """What each rank gets of the parts, laid row after row."""
    found = []
    for rank in range(tp):
        cut = Cut(tp, rank)
        rows = []
        for part, values in parts:
            info = TensorInfo(part.name, "F32", values.shape, Path("x"), 0, 0)
            for piece in cut.pieces(part, info):
                if isinstance(piece, Piece):
                    rows.append(values[slice(*piece.rows), slice(*piece.columns)])
                else:
                    rows.append(np.zeros((piece.elements // values.shape[1], values.shape[1]), np.float32))
        found.append(np.concatenate(rows))
    return found


def matrix(rows: int, columns: int) -> np.ndarray:
    return RNG.standard_normal((rows, columns)).astype(np.float32)


@given(kv=st.sampled_from([1, 2, 4, 8]), tp=st.sampled_from([1, 2, 4, 8]), head=st.sampled_from([2, 6]))
def test_attention_heads(kv: int, tp: int, head: int) -> None:
    q, k, v = matrix(8 * head, 3), matrix(kv * head, 3), matrix(kv * head, 3)
    parts = [(Part("q", q.shape, "rows"), q), (Part("k", k.shape, "heads", head=head), k),
             (Part("v", v.shape, "heads", head=head), v)]  # fmt: skip
    config = {"num_attention_heads": 8, "num_key_value_heads": kv}
    found = merged(f"{LAYER}attention.qkv.weight", pieces(parts, tp), config, experts=False)
    assert np.array_equal(found, np.concatenate([q, k, v]))


@given(rows=st.integers(1, 30), tp=st.integers(1, 8))
def test_the_vocabulary_loses_its_padding(rows: int, tp: int) -> None:
    values = matrix(rows, 4)
    cut = pieces([(Part("e", values.shape, "vocabulary"), values)], tp)
    assert np.array_equal(merged("lm_head.weight", cut, {"vocab_size": rows}, experts=False), values)
    config = {"vocab_size": rows, "use_parallel_embedding": True}
    assert np.array_equal(merged("transformer.vocab_embedding.weight", cut, config, experts=False), values)


@given(tp=st.sampled_from([1, 2, 4]), stacked=st.booleans())
def test_the_ffn(tp: int, stacked: bool) -> None:
    up, gate, down = matrix(8, 4), matrix(8, 4), matrix(4, 8)
    config = {"intermediate_size": 8}
    both = [(Part("u", up.shape, "rows"), up), (Part("g", gate.shape, "rows"), gate)]
    columns = pieces(both if stacked else both[:1], tp)
    wanted = np.concatenate([up, gate]) if stacked else up
    assert np.array_equal(merged(f"{LAYER}mlp.fc.weight", columns, config, experts=False), wanted)
    cut = pieces([(Part("d", down.shape, "columns"), down)], tp)
    assert np.array_equal(merged(f"{LAYER}mlp.proj.weight", cut, config, experts=False), down)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_experts(tp: int) -> None:
    up, gate = (RNG.standard_normal((3, 8, 4)).astype(np.float32) for _ in range(2))
    share = 8 // tp
    ranks = [
        np.concatenate([up[:, r * share : (r + 1) * share], gate[:, r * share : (r + 1) * share]], axis=1)
        for r in range(tp)
    ]
    config = {"intermediate_size": 99, "moe_intermediate_size": 8}
    found = merged(f"{LAYER}mlp.fc.weight", ranks, config, experts=True)
    assert np.array_equal(found, np.concatenate([up, gate], axis=1))
    scale = np.ones((3, 1), np.float32)
    kept = merged(f"{LAYER}mlp.fc.weights_scaling_factor", [scale] * tp, config, experts=True)
    assert np.array_equal(kept, scale)


SCALES = {
    "attention.dense.weights_scaling_factor": ((4,), (4,)),  # of rows: on every rank
    "attention.dense.prequant_scaling_factor": ((4,), (8,)),
    "attention.qkv.prequant_scaling_factor": ((4,), (4,)),
    "mlp.proj.weights_scaling_factor": ((4, 1), (4, 2)),  # of groups of columns, one on each rank
    "mlp.gate.weights_scaling_factor": ((4, 1), (8, 1)),
    "mlp.gate.per_channel_scale": ((4,), (8,)),
    "mlp.gate.activation_scaling_factor": ((1,), (1,)),
    "mlp.gate.weights_scaling_factor_2": ((), ()),
    "attention.kv_cache_scaling_factor": ((1,), (1,)),
    "mlp.proj.bias": ((4,), (4,)),
    "input_layernorm.weight": ((4,), (4,)),
}


@pytest.mark.parametrize("name", SCALES)
def test_scales(name: str) -> None:
    shape, wanted = SCALES[name]
    piece = np.full(shape, 2.0, np.float32)
    config = {"intermediate_size": 8, "num_attention_heads": 2}
    assert merged(f"{LAYER}{name}", [piece, piece], config, experts=False).shape == wanted


def test_packed_rows_of_two_halves_are_told_by_what_they_stand_for() -> None:
    up, gate = np.zeros((4, 2), np.int8), np.ones((4, 2), np.int8)  # 8 rows each
    ranks = [np.concatenate([up[:2], gate[:2]]), np.concatenate([up[2:], gate[2:]])]
    found = merged(f"{LAYER}mlp.fc.weight", ranks, {"intermediate_size": 8}, experts=False, packed=2)
    assert np.array_equal(found, np.concatenate([up, gate]))


@pytest.mark.parametrize(
    ("name", "ranks", "why"),
    [
        ("input_layernorm.weight", [np.zeros(2), np.ones(2)], "copies differ"),
        ("mlp.proj.weight", [np.zeros((2, 2)), np.zeros((2, 3))], "shape or type"),
        ("attention.qkv.weight", [np.zeros((7, 2)), np.zeros((7, 2))], "rows are not those"),
    ],
)
def test_what_cannot_be_one_tensor_is_refused(name: str, ranks: list[Any], why: str) -> None:
    config = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 8}
    with pytest.raises(ValueError, match=why):
        merged(f"{LAYER}{name}", ranks, config, experts=False)
