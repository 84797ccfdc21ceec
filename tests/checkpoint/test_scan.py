"""NaN and infinity by their bits, in every type, wherever they stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoint.models import save
from trtspec.checkpoint import scan
from trtspec.checkpoint.scan import nonfinite
from trtspec.checkpoint.tensors import SafetensorsFile

KINDS = {"F32": "<u4", "F16": "<u2", "BF16": "<u2"}


def values(bits: np.ndarray, dtype: str) -> np.ndarray:  # type: ignore[type-arg]
    """What the bits mean, by numpy's own reading."""
    if dtype == "BF16":
        return (bits.astype("<u4") << 16).view("<f4")
    return bits.view("<f4" if dtype == "F32" else "<f2")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dtype=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 1000), count=st.integers(0, 400))
def test_any_bits(tmp_path: Path, dtype: str, seed: int, count: int) -> None:
    kind = KINDS[dtype]
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, np.iinfo(kind).max, count, dtype=kind, endpoint=True)
    bits[rng.random(count) < 0.02] |= kind_of_exponent(dtype)
    save(tmp_path / "w.safetensors", {"x": {"dtype": dtype, "shape": [count], "data": bits.tobytes()}})
    wanted = int((~np.isfinite(values(bits, dtype))).sum())
    tensors = SafetensorsFile.open(tmp_path / "w.safetensors").tensors
    assert nonfinite(tensors.values()) == ({"x": wanted} if wanted else {})


def kind_of_exponent(dtype: str) -> int:
    return {"F32": 0x7F80_0000, "F16": 0x7C00, "BF16": 0x7F80}[dtype]


@pytest.mark.parametrize("at", [0, 524_287, 524_288, 1_048_576, 1_200_000])
def test_every_block_is_read(tmp_path: Path, at: int) -> None:
    data = np.zeros(1_200_001, "<u2")
    data[at] = 0xFF80  # minus infinity
    save(tmp_path / "w.safetensors", {"x": {"dtype": "BF16", "shape": [len(data)], "data": data.tobytes()}})
    assert nonfinite(SafetensorsFile.open(tmp_path / "w.safetensors").tensors.values()) == {"x": 1}


def test_largest_finite_values_pass(tmp_path: Path) -> None:
    tensors = {
        dtype: {"dtype": dtype, "shape": [1], "data": np.array([kind_of_exponent(dtype) - 1], kind).tobytes()}
        for dtype, kind in KINDS.items()
    }
    tensors["I32"] = {"dtype": "I32", "shape": [1], "data": b"\xff" * 4}
    save(tmp_path / "w.safetensors", tensors)
    assert nonfinite(SafetensorsFile.open(tmp_path / "w.safetensors").tensors.values()) == {}
    assert set(scan.EXPONENTS) == set(KINDS)
