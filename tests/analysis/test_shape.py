"""Sizes against parameter counts of published models, and splits against arithmetic by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.analysis.shape import Format, Matrix, Shape, layer_bytes, layer_elements, rank_bytes, stages

LLAMA_70B = Shape(80, 8192, 64, 8, 128, 28672, 128256)
LLAMA_1B = Shape(16, 2048, 32, 8, 64, 8192, 128256, tied=True)
QWEN_72B = Shape(80, 8192, 64, 8, 128, 29568, 152064, qkv_bias=True)
MIXTRAL = Shape(32, 4096, 32, 8, 128, 14336, 32000, experts=8, top_k=2, expert_intermediate=14336, sparse_layers=32)
FP16 = Format(16)


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [(LLAMA_70B, 70553706496), (LLAMA_1B, 1235814400), (QWEN_72B, 72706203648), (MIXTRAL, 46702792704)],
)
def test_parameters_of_published_models(shape: Shape, parameters: int) -> None:
    assert shape.parameters == parameters


def test_active_parameters_of_a_mixture() -> None:
    assert MIXTRAL.active_parameters == pytest.approx(12.9e9, rel=0.005)  # as Mistral states it
    assert LLAMA_70B.active_parameters == LLAMA_70B.parameters


def total(shape: Shape, form: Format = FP16, plain: int = 2, **split: int) -> int:
    return sum(rank.total for rank in rank_bytes(shape, form, plain, share_table=True, **split))


@pytest.mark.parametrize("shape", [LLAMA_70B, LLAMA_1B, QWEN_72B], ids=["70B", "1B", "72B"])
def test_one_rank_of_16_bit_weights_is_two_bytes_a_parameter(shape: Shape) -> None:
    assert total(shape) == 2 * shape.parameters


def test_a_mixture_keeps_its_routers_in_float32() -> None:
    routers = 32 * 8 * 4096
    assert total(MIXTRAL) == 2 * MIXTRAL.parameters + 2 * routers


def test_ranks_share_matrices_and_copy_key_value_heads() -> None:
    one, eight, sixteen = (layer_elements(LLAMA_70B, t) for t in (1, 8, 16))
    assert eight * 8 == one
    # 8 key-value heads on 16 ranks: each rank has a whole one, so k and v take twice their share.
    extra = 80 * 2 * 128 * 8192 / 2
    assert sixteen == one / 16 + extra


def test_the_vocabulary_is_padded_before_it_is_split() -> None:
    odd = Shape(1, 64, 4, 4, 16, 128, 1001)
    assert rank_bytes(odd, FP16, 2, tensor=2)[0].tables == 2 * 501 * 64 * 2


def test_pipeline_stages_hold_all_layers_once() -> None:
    assert stages(80, 3) == [27, 27, 26]
    ranks = rank_bytes(LLAMA_70B, FP16, 2, pipeline=4)
    assert sum(rank.total for rank in ranks) == 2 * LLAMA_70B.parameters
    assert ranks[0].tables == ranks[3].tables == 2 * 128256 * 8192
    assert ranks[1].tables == 0


def test_scales_of_groups_rows_and_columns() -> None:
    form = Format(4, group=128, scale_bytes=4, per_row=1, per_column=2, fixed=8)
    assert form.nbytes(Matrix("m", 10, 256)) == 10 * 256 / 2 + 10 * 2 * 4 + 10 + 2 * 256 + 8
    assert Format(4, group=128, scale_bytes=4).nbytes(Matrix("m", 1, 129)) == 129 / 2 + 2 * 4, (
        "a part group counts whole"
    )


def test_experts_that_are_hit() -> None:
    none, one, all_ = (layer_bytes(MIXTRAL, FP16, 1, n) for n in (0, 1, None))
    assert all_ - none == pytest.approx(8 * (one - none))


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 5]), st.sampled_from([4, 8, 16]))
def test_more_ranks_never_hold_less_in_all_and_each_holds_less(tensor: int, pipeline: int, bits: int) -> None:
    form = Format(bits)
    whole = rank_bytes(LLAMA_70B, form, 2)[0].total
    ranks = rank_bytes(LLAMA_70B, form, 2, tensor=tensor, pipeline=pipeline)
    assert tensor * sum(rank.total for rank in ranks) >= whole
    assert max(rank.total for rank in ranks) <= whole
