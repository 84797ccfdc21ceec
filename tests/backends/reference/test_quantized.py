"""Quantized checkpoints: logits equal a transformers model whose linears round as numpy says, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.backends.reference.families import IDS, all_logits, oracle, run_config  # noqa: E402
from tests.backends.reference.quantized import RoundedCache, emulate, quantize  # noqa: E402
from trtspec.backends.reference.builder import ReferenceBuilder  # noqa: E402
from trtspec.backends.reference.core import Core  # noqa: E402
from trtspec.backends.reference.model import Feed  # noqa: E402
from trtspec.checkpoint.convert import convert  # noqa: E402
from trtspec.checkpoint.formats import FORMATS  # noqa: E402
from trtspec.errors import ModelFileError  # noqa: E402

pytestmark = pytest.mark.torch
QUANTIZED = [name for name in FORMATS if name != "none"]


def built(model: Any, root: Path, weights: str, kv_cache: str = "auto") -> Core:
    for name in ("checkpoint", "engine"):
        (root / name).mkdir()
    model.save_pretrained(root / "hf")
    convert(root / "hf", root / "checkpoint")
    quantize(root / "checkpoint", weights, kv_cache)
    config = run_config(root / "hf", compute_dtype="auto")
    ReferenceBuilder().build(config, "target", root / "checkpoint", root / "engine")
    return Core(root / "engine", threads=1)


def step(core: Core, *feeds: Feed) -> np.ndarray:
    with torch.inference_mode():
        return core.step(feeds).copy()


def check(core: Core, expected: np.ndarray, plain: np.ndarray) -> None:
    """Equal to the oracle but where a value on the border between two codes fell to the other side, which one bit of
    a sum decides; what quantization changes is far larger, and computing in runs changes nothing."""
    got = step(core, Feed(0, 0, IDS, 40))
    assert core.config.compute_dtype == "float32"
    assert core.config.compiled
    effect = np.abs(expected - plain).max()
    assert effect > 0.1
    close = np.abs(got - expected).max(1) < 1e-4
    assert close.mean() > 0.9 or np.corrcoef((got - plain).ravel(), (expected - plain).ravel())[0, 1] > 0.99
    if core.config.linear_kind == "mkldnn-prepacked" and torch.backends.mkl.is_available():
        runs = np.concatenate([step(core, Feed(1, at, IDS[at : at + 5], 5)) for at in range(0, 40, 5)])
        singles = np.concatenate([step(core, Feed(2, at, IDS[at : at + 1], 1)) for at in range(40)])
        np.testing.assert_array_equal(runs, got)
        np.testing.assert_array_equal(singles, got)


@pytest.mark.parametrize("weights", QUANTIZED)
def test_every_format(tmp_path: Path, weights: str) -> None:
    model = oracle("llama")
    plain = all_logits(model, IDS)
    core = built(model, tmp_path, weights)
    emulate(model, tmp_path / "checkpoint")
    check(core, all_logits(model, IDS), plain)


@pytest.mark.parametrize("weights", ["none", "fp8"])
@pytest.mark.parametrize("kv_cache", ["fp8", "int8"])
def test_quantized_caches(tmp_path: Path, weights: str, kv_cache: str) -> None:
    model = oracle("llama")
    plain = all_logits(model, IDS)
    core = built(model, tmp_path, weights, kv_cache)
    emulate(model, tmp_path / "checkpoint")
    with torch.inference_mode():
        cache = RoundedCache(kv_cache, 0.05)
        expected = model(torch.tensor([IDS]), past_key_values=cache, use_cache=True).logits[0].numpy()
    check(core, expected, plain)


@pytest.mark.parametrize(
    ("family", "weights"), [("qwen3", "fp8"), ("qwen2", "int8_sq"), ("mistral", "nvfp4"), ("mixtral", "fp8")]
)
def test_other_families(tmp_path: Path, family: str, weights: str) -> None:
    model = oracle(family)
    plain = all_logits(model, IDS)
    core = built(model, tmp_path, weights)
    emulate(model, tmp_path / "checkpoint")
    check(core, all_logits(model, IDS), plain)


def test_nan_scales_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    built(oracle("llama"), tmp_path, "fp8")
    file = tmp_path / "engine" / "rank0.safetensors"
    tensors = load_file(file)
    tensors["transformer.layers.2.mlp.fc.weights_scaling_factor"][:] = float("nan")
    save_file(tensors, file)
    with pytest.raises(ModelFileError, match=r"layers\.2\.mlp\.fc\.weight holds NaN"):
        Core(tmp_path / "engine", threads=1)
