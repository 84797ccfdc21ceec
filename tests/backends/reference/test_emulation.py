"""Inputs of quantized products: the same bits as numpy's imitation of the kernels; the cache's rounding."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from trtspec.backends.reference.attention import Attention  # noqa: E402
from trtspec.backends.reference.emulation import MODES, EmulatedProducts  # noqa: E402
from trtspec.backends.reference.ffn import Ffn  # noqa: E402
from trtspec.backends.reference.forward import Forward  # noqa: E402
from trtspec.backends.reference.linear import linear_of  # noqa: E402
from trtspec.checkpoint.activations import ActivationQuant  # noqa: E402
from trtspec.checkpoint.codecs import E2M1_VALUES  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")]
K = 32


def values() -> np.ndarray:
    """Small and large numbers, a row of zeros, values that saturate, and both kinds of zero."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, K)) * np.exp(rng.uniform(-8, 4, (40, 1)))).astype(np.float32)
    x[3], x[4, 0], x[5, 1] = 0.0, -0.0, 4000.0
    return x


def products(*inputs: ActivationQuant | None) -> EmulatedProducts:
    made = EmulatedProducts(linear_of("torch-linear"))
    for one in inputs:
        made.add(torch.eye(K), None, one)
    return made


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("prequant", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_inputs_are_rounded_as_numpy_does(kind: str, prequant: bool, compiled: bool) -> None:
    vector = np.random.default_rng(1).uniform(0.3, 3, K).astype(np.float32) if prequant else None
    scale = {"fp8-static": 0.013, "int8-static": 0.04, "nvfp4-block": 0.002}.get(kind)
    inputs = ActivationQuant(kind, scale, vector, 16)  # type: ignore[arg-type]
    module = products(None, inputs)
    run = torch.jit.script(module) if compiled else module
    x = values()
    with torch.inference_mode():
        got, untouched = run(torch.from_numpy(x), 1).numpy(), run(torch.from_numpy(x), 0).numpy()
    np.testing.assert_array_equal(untouched, x)
    np.testing.assert_array_equal(got, inputs.apply(x))
    assert (kind == "none" and not prequant) or not np.array_equal(got, x)


def test_every_value_and_tie_of_fp4() -> None:
    grid = np.unique(np.abs(E2M1_VALUES))
    points = np.concatenate((grid, (grid[1:] + grid[:-1]) / 2, grid + 0.01, [7.0]))
    points = np.concatenate((points, -points))
    x = np.zeros((len(points), 16), np.float32)
    x[:, 0], x[:, 1] = points, 6.0  # the block's scale is then 1
    inputs = ActivationQuant("nvfp4-block", 1.0, None, 16)
    module = EmulatedProducts(linear_of("torch-linear"))
    module.add(torch.eye(16), None, inputs)
    np.testing.assert_array_equal(module.rounded(torch.from_numpy(x), 0).numpy(), inputs.apply(x))


def test_the_two_halves_of_a_gated_product_round_each_in_its_own_way() -> None:
    one, other = ActivationQuant("fp8-static", 0.01), ActivationQuant("int8-static", 0.5)
    x = values()
    with torch.inference_mode():
        got = products(one, other).gated(torch.from_numpy(x), 0)
    expected = torch.nn.functional.silu(torch.from_numpy(one.apply(x))) * torch.from_numpy(other.apply(x))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("algo", "levels"), [("FP8", 448.0), ("INT8", 128.0)])
def test_the_caches_rounding(algo: str, levels: float) -> None:
    plain = products()
    forward = Forward(plain, Attention(2, 1, 8, None), Ffn(plain), cache_algo=algo)
    scale = torch.tensor([[0.5], [0.01]])  # keys, values
    fresh = torch.randn(30, 2, 8) * 3
    fresh[0, 0, 0] = 1e6
    got = forward.rounded(fresh, scale)
    codes = (got / scale).double()
    if algo == "INT8":
        torch.testing.assert_close(codes, codes.round(), rtol=0, atol=1e-4)
    else:
        torch.testing.assert_close(codes.float(), codes.float().to(torch.float8_e4m3fn).float(), rtol=1e-5, atol=0)
    assert got[0, 0, 0] == pytest.approx((levels if algo == "FP8" else 127.0) * 0.5)
    inside = fresh.abs() < levels * scale * 0.9
    step = scale if algo == "INT8" else fresh.abs() / 8 + scale * 2**-9
    assert ((got - fresh).abs() <= step)[inside].all()
