"""Every family and rope type: converted by the project's own converter, its logits equal transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.families import (  # noqa: E402
    DYNAMIC_LIMITS,
    FAMILIES,
    IDS,
    ROPES,
    VOCAB,
    all_logits,
    core_of,
    one_by_one,
    oracle,
    with_rope,
)
from trtspec.backends.reference.core import Core  # noqa: E402
from trtspec.backends.reference.model import Feed  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*RoPE"),
]
TOLERANCE = 1e-4
CUTS = [9, 1, 5, 1, 1, 8, 15]
"""A prompt, single tokens and verify runs, over the 40 ids: more than five windows."""


def step(core: Core, *feeds: Feed) -> np.ndarray:
    with torch.inference_mode():
        return core.step(feeds).copy()


def in_runs(core: Core, slot: int) -> np.ndarray:
    """Logits of all ids, computed in CUTS, beside another sequence."""
    starts = np.cumsum([0, *CUTS])
    rows = []
    for start, length in zip(starts, CUTS, strict=False):
        beside = Feed(slot + 1, 0, IDS[:3], 0)
        rows.append(step(core, beside, Feed(slot, int(start), IDS[start : start + length], length)))
    return np.concatenate(rows)


def check(core: Core, expected: np.ndarray) -> None:
    """Prefill equals the oracle; every other way to compute a token gives the same bits."""
    prefill = step(core, Feed(0, 0, IDS, len(IDS)))
    np.testing.assert_allclose(prefill, expected, rtol=0, atol=TOLERANCE)
    runs = in_runs(core, 1)
    if core.config.linear_kind == "mkldnn-prepacked" and torch.backends.mkl.is_available():
        np.testing.assert_array_equal(runs, prefill)
    np.testing.assert_allclose(runs, expected, rtol=0, atol=TOLERANCE)
    assert core.config.compiled


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_transformers(tmp_path: Path, family: str) -> None:
    model = oracle(family)
    check(core_of(model, tmp_path), all_logits(model, IDS))


@pytest.mark.parametrize("rope", [name for name in ROPES if name != "dynamic"])
def test_rope_types_equal_transformers(tmp_path: Path, rope: str) -> None:
    model = with_rope(rope)
    check(core_of(model, tmp_path), all_logits(model, IDS))


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral"])
def test_rope_types_are_not_llamas_alone(tmp_path: Path, family: str) -> None:
    model = with_rope("yarn", family=family)
    check(core_of(model, tmp_path), all_logits(model, IDS))


def test_dynamic_rope_beyond_the_trained_length_is_that_of_cached_decoding(tmp_path: Path) -> None:
    """Each token is turned by the length of the sequence that ends with it, as when transformers decodes one by one."""
    model = with_rope("dynamic")
    expected = one_by_one(model, IDS)
    assert np.abs(all_logits(with_rope("linear"), IDS) - expected).max() > 1
    check(core_of(model, tmp_path, **DYNAMIC_LIMITS), expected)


@pytest.mark.parametrize("linear", ["torch-linear"])
@pytest.mark.parametrize("family", ["gemma2", "qwen3-moe-renormalized", "phi3"])
def test_plain_linears_give_the_same(tmp_path: Path, family: str, linear: Any) -> None:
    model = oracle(family)
    core_of(model, tmp_path)
    core = Core(tmp_path / "engine", threads=1, linear=linear)
    expected = all_logits(model, IDS)
    np.testing.assert_allclose(step(core, Feed(0, 0, IDS, 40)), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
def test_ranks_are_merged(tmp_path: Path, family: str) -> None:
    """Two stages of two ranks; the vocabulary of 67 is padded."""
    model = oracle(family, num_hidden_layers=4)
    core = core_of(model, tmp_path, tensor=2, pipeline=2)
    assert sorted(file.name for file in (tmp_path / "engine").glob("*.safetensors")) == [
        f"rank{rank}.safetensors" for rank in range(4)
    ]
    assert core.config.vocab_size == VOCAB
    expected = all_logits(model, IDS)
    np.testing.assert_allclose(step(core, Feed(0, 0, IDS, 40)), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("family", ["llama", "gemma2", "phi3", "mixtral"])
def test_more_ranks_than_key_heads(tmp_path: Path, family: str) -> None:
    model = oracle(family)
    core = core_of(model, tmp_path, tensor=4)
    expected = all_logits(model, IDS)
    np.testing.assert_allclose(step(core, Feed(0, 0, IDS, 40)), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("family", ["mistral", "qwen3", "gemma3", "mixtral", "phi3"])
def test_bfloat16_is_close_and_the_same_bits_in_runs(tmp_path: Path, family: str) -> None:
    model = oracle(family, initializer_range=0.15)
    core = core_of(model, tmp_path, compute_dtype="bfloat16")
    prefill, runs = step(core, Feed(0, 0, IDS, 40)), in_runs(core, 1)
    expected = all_logits(model, IDS)
    # Of a mixture a token near the border may go to another expert: most rows, then, not all.
    worst = np.abs(prefill - expected).max(1) / np.abs(expected).max()
    assert np.median(worst) < 0.05
    if core.config.linear_kind != "mkldnn-prepacked" or not torch.backends.mkl.is_available():
        pytest.skip("equal bits are known of oneDNN's packed linears and MKL only")
    np.testing.assert_array_equal(runs, prefill)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("mistral", {"sliding_window": 8}),
        ("gemma2", {"attn_logit_softcapping": 4.0}),
        ("gemma2", {"final_logit_softcapping": 5.5}),
        ("gemma2", {"query_pre_attn_scalar": 13}),
        ("gemma3", {"rope_local_base_freq": 120.0}),
        ("gemma3", {"sliding_window": 8}),
        ("phi3", {"partial_rotary_factor": 0.5}),
        ("qwen3-moe", {"norm_topk_prob": True}),
        ("mixtral", {"num_experts_per_tok": 3}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_the_oracle_sees_each_feature(family: str, changes: dict[str, Any]) -> None:
    """A slightly different setting moves logits far beyond the tolerance: none could be forgotten unnoticed."""
    moved = np.abs(all_logits(oracle(family), IDS) - all_logits(oracle(family, **changes), IDS)).max()
    assert moved > 100 * TOLERANCE
