"""Every family, cut for any number of ranks and put together again, is the model it was."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoint.madefamilies import CONFIGS, config_of, write_family
from tests.checkpoint.merged import expected, merge, ranks
from trtspec.checkpoint.convert import convert
from trtspec.checkpoint.layout import Layout
from trtspec.checkpoint.plan import plan_conversion
from trtspec.errors import ConfigError


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def assert_same(family: str, folder: Path, values: dict[str, np.ndarray], pipeline: int, **changes: object) -> None:  # type: ignore[type-arg]
    config = config_of(family, **changes)
    wanted, found = expected(values, config), merge(folder)
    if family.startswith("gemma") and pipeline == 1:
        wanted.pop("lm_head.weight")
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert np.array_equal(found[name], value), name


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 1), (2, 1), (8, 1), (1, 2), (4, 3)])
def test_every_family(tmp_path: Path, out: Path, family: str, tensor: int, pipeline: int) -> None:
    values = write_family(tmp_path / "m", family, shards=2)
    convert(tmp_path / "m", out, tensor=tensor, pipeline=pipeline)
    assert_same(family, out, values, pipeline)


@settings(max_examples=25, deadline=None)
@given(
    family=st.sampled_from(sorted(CONFIGS)),
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.integers(1, 3),
    layers=st.integers(3, 5),
    vocab=st.integers(1, 60),
    kv=st.sampled_from([1, 2, 8]),
    shards=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_random_cuts(
    family: str, tensor: int, pipeline: int, layers: int, vocab: int, kv: int, shards: int, seed: int
) -> None:
    changes = {"num_hidden_layers": layers, "vocab_size": vocab, "num_key_value_heads": kv}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        values = write_family(folder / "m", family, shards=shards, seed=seed, **changes)
        (folder / "out").mkdir()
        convert(folder / "m", folder / "out", tensor=tensor, pipeline=pipeline)
        assert_same(family, folder / "out", values, pipeline, **changes)


def test_uneven_stages_take_one_layer_more_from_the_first() -> None:
    assert [list(Layout(1, 3).layers(8, stage)) for stage in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_uneven_stages_are_refused_for_versions_that_assert(tmp_path: Path) -> None:
    write_family(tmp_path, "llama")
    for version in (None, "1.0.0", "1.2.1"):
        assert len(plan_conversion(tmp_path, pipeline=2, tensorrt_llm_version=version).ranks) == 2
    with pytest.raises(ConfigError, match=r"pipeline 2 does not divide the 3 layers, which TensorRT-LLM 0.20.0"):
        plan_conversion(tmp_path, pipeline=2, tensorrt_llm_version="0.20.0")
    plan_conversion(tmp_path, pipeline=3, tensorrt_llm_version="0.20.0")


@pytest.mark.parametrize(
    ("family", "cut", "changes", "message"),
    [
        ("llama", {"tensor": 3}, {}, "tensor 3 does not divide the 8 attention heads"),
        ("llama", {"tensor": 2}, {"intermediate_size": 49}, "tensor 2 does not divide the 49 intermediate columns"),
        ("qwen3_moe", {"tensor": 8}, {"moe_intermediate_size": 12}, "the 12 intermediate columns of an expert"),
        ("llama", {"tensor": 4}, {"num_attention_heads": 24, "num_key_value_heads": 6}, "4 and the 6 key-value heads"),
        ("llama", {"pipeline": 4}, {}, "pipeline 4 is above the 3 layers"),
        ("llama", {"tensor": 0}, {}, "below 1"),
    ],
)
def test_cuts_that_do_not_go(
    tmp_path: Path, family: str, cut: dict[str, int], changes: dict[str, int], message: str
) -> None:
    write_family(tmp_path, family, **changes)
    with pytest.raises(ConfigError, match=message):
        plan_conversion(tmp_path, **cut)  # type: ignore[arg-type]


def test_padding_and_mapping(tmp_path: Path, out: Path) -> None:
    write_family(tmp_path / "m", "llama", vocab_size=1001)
    result = convert(tmp_path / "m", out, tensor=2, pipeline=2)
    held = ranks(out)
    assert held[0]["transformer.vocab_embedding.weight"].shape == (501, 32)
    assert not held[1]["transformer.vocab_embedding.weight"][500:].any()
    assert "lm_head.weight" not in held[0]
    assert "transformer.vocab_embedding.weight" not in held[2]
    assert held[3]["lm_head.weight"].shape == (501, 32)
    config = result.config
    assert (config["vocab_size"], config["use_parallel_embedding"], config["embedding_sharding_dim"]) == (1001, True, 0)
    assert config["mapping"] == {
        "world_size": 4, "tp_size": 2, "pp_size": 2, "cp_size": 1, "gpus_per_node": 8,
        "moe_tp_size": 2, "moe_ep_size": 1,
    }  # fmt: skip


def test_ranks_with_no_real_row_of_the_vocabulary(tmp_path: Path, out: Path) -> None:
    values = write_family(tmp_path / "m", "qwen2", vocab_size=5)
    convert(tmp_path / "m", out, tensor=4)
    assert_same("qwen2", out, values, 1, vocab_size=5)
    assert not ranks(out)[3]["lm_head.weight"].any()


def test_row_parallel_biases_are_whole_in_every_rank(tmp_path: Path, out: Path) -> None:
    # TensorRT-LLM's RowLinear adds its bias after the sum over ranks, and its loader demands one of each rank.
    values = write_family(tmp_path / "m", "llama-biased")
    convert(tmp_path / "m", out, tensor=2)
    for rank in ranks(out):
        bias = rank["transformer.layers.0.attention.dense.bias"]
        assert np.array_equal(bias, values["model.layers.0.self_attn.o_proj.bias"])
