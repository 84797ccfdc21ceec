"""What quantized linears do to their inputs."""

from __future__ import annotations

import numpy as np
import pytest

from trtspec.checkpoint.activations import ActivationQuant, fake_fp8, fake_nvfp4, row_scales

RNG = np.random.default_rng(3)


def test_static_fp8_is_exact_on_its_grid_and_saturates_beyond() -> None:
    quant = ActivationQuant("fp8-static", scale=0.5)
    assert list(quant.apply(np.array([0.5, -8.0, 224.0, 1000.0], np.float32))) == [0.5, -8.0, 224.0, 224.0]


def test_static_int8_rounds_to_even_and_clips() -> None:
    quant = ActivationQuant("int8-static", scale=1.0)
    assert list(quant.apply(np.array([0.5, 1.5, -2.6, 300.0, -300.0], np.float32))) == [0, 2, -3, 127, -128]


def test_a_token_has_its_own_scale() -> None:
    x = np.array([[448.0, 1.0], [4.48, 0.01]], np.float32)
    found = ActivationQuant("fp8-token").apply(x)
    assert np.allclose(found[:, 0], x[:, 0])
    assert np.allclose(found[0] / 100, found[1], rtol=1e-6)


def test_the_vector_comes_before_quantization() -> None:
    quant = ActivationQuant("int8-static", scale=1.0, prequant=np.array([0.1, 10.0], np.float32))
    assert list(quant.apply(np.array([[104.0, 0.26]], np.float32))[0]) == [10.0, 3.0]


def test_a_vector_alone_multiplies() -> None:
    quant = ActivationQuant("none", prequant=np.array([2.0, 3.0], np.float32))
    assert list(quant.apply(np.array([1.0, 1.0], np.float32))) == [2.0, 3.0]


def test_relative_error_of_e4m3_is_at_most_a_sixteenth() -> None:
    x = RNG.standard_normal(4096).astype(np.float32)
    scale = np.float32(np.abs(x).max() / 448)
    large = np.abs(x) > scale * 2.0**-6
    assert np.max(np.abs(fake_fp8(x, scale) - x)[large] / np.abs(x)[large]) <= 1 / 16


def test_zeros_have_scale_one() -> None:
    assert list(row_scales(np.zeros((2, 3), np.float32), 448.0).ravel()) == [1.0, 1.0]


def test_nvfp4_error_is_within_half_a_step_of_its_block() -> None:
    x = RNG.standard_normal((8, 64)).astype(np.float32)
    second = np.float32(np.abs(x).max() / (6 * 448))
    found = fake_nvfp4(x, second, 16)
    amax = np.abs(x).reshape(8, 4, 16).max(-1, keepdims=True)
    # The widest step of E2M1 is 2 of 6; a block's scale is itself rounded to 1/16.
    assert np.all(np.abs(found - x).reshape(8, 4, 16) <= amax * (1 / 6 + 1 / 14))


@pytest.mark.torch
def test_nvfp4_is_modelopts() -> None:
    torch = pytest.importorskip("torch")
    tensor = pytest.importorskip("modelopt.torch.quantization.qtensor").NVFP4QTensor
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    quantized, scale, second = tensor.quantize(x.clone(), 16)
    wanted = quantized.dequantize(dtype=torch.float32, scale=scale, double_scale=second, block_sizes={-1: 16})
    assert np.array_equal(fake_nvfp4(x.numpy(), np.float32(second), 16), wanted.numpy())
