"""Number formats, exhaustively against torch where torch has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trtspec.checkpoint import codecs

ALL_BYTES = np.arange(256, dtype=np.uint8)
ALL_HALVES = np.arange(65536, dtype=np.uint16)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal values, NaN where NaN, and the same sign of zero."""
    return bool(np.array_equal(one, other, equal_nan=True) and np.array_equal(np.signbit(one), np.signbit(other)))


@pytest.mark.torch
def test_every_e4m3_code_has_torchs_value() -> None:
    import torch

    wanted = torch.from_numpy(ALL_BYTES.copy()).view(torch.float8_e4m3fn).float().numpy()
    assert same(codecs.decode(ALL_BYTES, "F8_E4M3"), wanted)


@pytest.mark.torch
def test_every_bf16_value_becomes_torchs_e4m3_code_up_to_448() -> None:
    import torch

    values = codecs.decode(ALL_HALVES, "BF16")
    within = values[np.abs(values) <= 448]
    wanted = torch.from_numpy(within.copy()).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(codecs.encode(within, "F8_E4M3"), wanted)


@pytest.mark.torch
def test_e4m3_boundaries_of_float32() -> None:
    """Every midpoint of neighbouring codes and the float32 on either side of it."""
    import torch

    positive = codecs.E4M3_VALUES[:127].astype(np.float64)
    middle = ((positive[:-1] + positive[1:]) / 2).astype(np.float32)
    values = np.concatenate([middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(500))])
    values = np.concatenate([values, -values])
    wanted = torch.from_numpy(values.copy()).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(codecs.encode_e4m3(values), wanted)


def test_e4m3_saturates_and_keeps_nan() -> None:
    codes = codecs.encode_e4m3(np.array([449, 1e9, np.inf, -1e9, np.nan], np.float32))
    assert list(codes[:4]) == [0x7E, 0x7E, 0x7E, 0xFE]
    assert codes[4] & 0x7F == 0x7F


@pytest.mark.torch
def test_every_bf16_code_has_torchs_value() -> None:
    import torch

    wanted = torch.from_numpy(ALL_HALVES.view(np.int16).copy()).view(torch.bfloat16).float().numpy()
    assert same(codecs.decode(ALL_HALVES, "BF16"), wanted)


@given(arrays.arrays(np.float32, 64, elements=st.floats(width=32, allow_nan=False)))
@pytest.mark.torch
def test_bf16_rounds_as_torch(values: np.ndarray) -> None:
    import torch

    wanted = torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(codecs.encode(values, "BF16"), wanted)


def test_bf16_keeps_nan() -> None:
    assert np.isnan(codecs.decode(codecs.encode_bf16(np.array([np.nan], np.float32)), "BF16")[0])


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F8_E4M3"])
def test_a_code_survives_decoding_and_encoding(dtype: str) -> None:
    codes = ALL_BYTES if dtype == "F8_E4M3" else ALL_HALVES
    codes = codes.view(np.float16) if dtype == "F16" else codes
    values = codecs.decode(codes, dtype)
    fine = ~np.isnan(values)
    assert np.array_equal(codecs.encode(values, dtype)[fine], codes[fine])


def test_e2m1_rounds_to_nearest_with_ties_to_even_codes() -> None:
    values = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.5, -0.75, -0.1, 0.0], np.float32)
    assert list(codecs.encode_e2m1(values)) == [0, 2, 2, 4, 4, 6, 6, 7, 10, 8, 0]


def test_every_e2m1_code_survives() -> None:
    codes = np.arange(16, dtype=np.uint8)
    back = codecs.encode_e2m1(codecs.E2M1_VALUES)
    assert np.array_equal(back[codes != 8], codes[codes != 8])  # -0 is not below 0
    assert list(codecs.E2M1_VALUES[:8]) == [0, 0.5, 1, 1.5, 2, 3, 4, 6]


@given(arrays.arrays(np.int8, st.tuples(st.sampled_from([2, 4, 6]), st.integers(1, 5)), elements=st.integers(-8, 7)))
def test_rows_pack_and_unpack(codes: np.ndarray) -> None:
    packed = codecs.pack_rows(codes)
    assert packed.shape == (codes.shape[0] // 2, codes.shape[1])
    assert np.array_equal(codecs.unpack_rows(packed), codes)


def test_the_even_row_is_the_low_half() -> None:
    assert codecs.pack_rows(np.array([[1], [-2]], np.int8)).view(np.uint8)[0, 0] == 0xE1


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 4), st.sampled_from([2, 8])), elements=st.integers(0, 15)))
def test_columns_pack_and_unpack(codes: np.ndarray) -> None:
    assert np.array_equal(codecs.unpack_columns(codecs.pack_columns(codes)), codes)


def test_the_first_column_is_the_low_half() -> None:
    assert codecs.pack_columns(np.array([[0x3, 0xA]], np.uint8))[0, 0] == 0xA3


def test_a_type_without_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="BOOL"):
        codecs.decode(np.zeros(2, bool), "BOOL")
    with pytest.raises(ValueError, match="I8"):
        codecs.encode(np.zeros(2, np.float32), "I8")
