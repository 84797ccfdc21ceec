"""Casts against numpy's and torch's rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.checkpoint.cast import NAMES, cast
from trtspec.errors import BuildError

BITS = st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=20)


@given(BITS)
def test_bfloat16_survives_a_detour_through_float32(bits: list[int]) -> None:
    data = np.array(bits, "<u2").tobytes()
    back = np.frombuffer(cast(cast(data, "BF16", "F32", "t"), "F32", "BF16", "t"), "<u2")
    exponent, mantissa = np.array(bits) & 0x7F80, np.array(bits) & 0x007F
    signalling = (exponent == 0x7F80) & (mantissa != 0)
    # A NaN may only become quiet; every other bit pattern returns as it was.
    assert np.array_equal(back, np.where(signalling, np.array(bits) | 0x40, bits))


@given(st.lists(st.floats(width=32, allow_nan=False, min_value=-(2.0**127), max_value=2.0**127), min_size=1))
def test_float32_to_bfloat16_is_the_nearest_even(values: list[float]) -> None:
    wide = np.array(values, "<f4")
    rounded = np.frombuffer(cast(cast(wide.tobytes(), "F32", "BF16", "t"), "BF16", "F32", "t"), "<f4")
    exact, got = wide.astype("f8"), rounded.astype("f8")
    below = (wide.view("<u4") & 0xFFFF0000).view("<f4").astype("f8")
    above = ((wide.view("<u4") & 0xFFFF0000) + np.uint32(0x10000)).view("<f4").astype("f8")
    nearest = np.minimum(abs(exact - below), abs(exact - above))
    assert np.array_equal(abs(exact - got), nearest)
    tie = abs(exact - below) == abs(exact - above)
    assert not ((rounded.view("<u4") >> 16)[tie] & 1).any()


@pytest.mark.parametrize(("source", "result", "value"), [("F32", "F16", 65520.0), ("F32", "BF16", 3.4e38)])
def test_a_finite_weight_never_becomes_infinite(source: str, result: str, value: float) -> None:
    with pytest.raises(BuildError, match=f"'w' is too large for {NAMES[result]}"):
        cast(np.array([1.0, value], "<f4").tobytes(), source, result, "w")


def test_infinities_and_nans_pass_through() -> None:
    data = np.array([np.inf, -np.inf, np.nan], "<f4").tobytes()
    for result, view in (("F16", "<f2"), ("BF16", "<u2")):
        narrow = cast(data, "F32", result, "t")
        wide = np.frombuffer(cast(narrow, result, "F32", "t"), "<f4")
        assert len(np.frombuffer(narrow, view)) == 3
        assert np.array_equal(wide, [np.inf, -np.inf, np.nan], equal_nan=True)


@pytest.mark.torch
def test_against_torch() -> None:
    torch = pytest.importorskip("torch")
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    wide = torch.randn(5000, generator=torch.Generator().manual_seed(1)) * torch.logspace(-9, 4, 5000)

    def raw(tensor: object) -> bytes:
        return tensor.view(torch.uint8).numpy().tobytes()  # type: ignore[attr-defined,no-any-return]

    for source, source_type in types.items():
        for result, result_type in types.items():
            data = wide.to(source_type)
            assert cast(raw(data), source, result, "t") == raw(data.to(result_type))
