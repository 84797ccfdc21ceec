"""The gated FFN and the mixture of experts against the formula, compiled and plain."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from trtspec.backends.reference.ffn import Ffn, Mixture  # noqa: E402
from trtspec.backends.reference.linear import linear_of  # noqa: E402
from trtspec.backends.reference.products import Products  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")]
HIDDEN, INNER, EXPERTS = 16, 24, 5


def products(count: int, gelu: bool = False) -> tuple[Products, list[Any]]:
    """`count` FFNs with random weights, and those weights."""
    made, weights = Products(linear_of("torch-linear", gelu)), []
    for _ in range(count):
        trio = [torch.randn(*shape) for shape in ((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))]
        weights.append(trio)
        for weight in trio:
            made.add(weight, None)
    return made, weights


def ffn(x: Any, trio: Any, gelu: bool = False) -> Any:
    fc, gate, proj = (w.double() for w in trio)
    a = x.double() @ fc.T
    act = torch.nn.functional.gelu(a, approximate="tanh") if gelu else torch.nn.functional.silu(a)
    return (act * (x.double() @ gate.T)) @ proj.T


@pytest.mark.parametrize("gelu", [False, True])
def test_gated_ffn(gelu: bool) -> None:
    torch.manual_seed(0)
    made, weights = products(2, gelu)
    x = torch.randn(3, HIDDEN)
    with torch.inference_mode():
        for module in (Ffn(made), torch.jit.script(Ffn(made))):
            torch.testing.assert_close(module(x, 3, 1).double(), ffn(x, weights[1], gelu), rtol=1e-4, atol=1e-4)


def mixture(normalize: bool, least_rows: int = 2) -> tuple[Mixture, Any, Any, Any]:
    """Layer 0 is plain, layers 1 and 2 are mixtures."""
    torch.manual_seed(1)
    dense, plain = products(1)
    experts, weights = products(2 * EXPERTS)
    routing, routers = Products(linear_of("torch-linear")), []
    for _ in range(2):
        routers.append(torch.randn(EXPERTS, HIDDEN))
        routing.add(routers[-1], None)
    module = Mixture(dense, routing, experts, [-1, 0, 1], EXPERTS, 2, normalize, least_rows)
    return module, plain[0], routers, weights


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("tokens", [1, 7])
def test_mixture(normalize: bool, compiled: bool, tokens: int) -> None:
    module, plain, routers, weights = mixture(normalize)
    run = torch.jit.script(module) if compiled else module
    x = torch.randn(tokens, HIDDEN)
    with torch.inference_mode():
        torch.testing.assert_close(run(x, tokens, 0).double(), ffn(x, plain), rtol=1e-4, atol=1e-4)
        got = run(x, tokens, 2)
    for row, result in zip(x, got, strict=True):
        shares = torch.softmax(row.double() @ routers[1].double().T, -1)
        best = shares.topk(2)
        scale = best.values.sum() if normalize else 1.0
        expected = sum(
            share / scale * ffn(row[None], weights[EXPERTS + int(e)])[0]
            for share, e in zip(best.values, best.indices, strict=True)
        )
        torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-3)


def test_padded_rows_stay_empty_and_route_nowhere() -> None:
    module, *_ = mixture(True, least_rows=4)
    x = torch.zeros(4, HIDDEN)
    x[:1] = torch.randn(1, HIDDEN)
    with torch.inference_mode():
        got = module(x, 1, 1)
    assert got.shape == (4, HIDDEN)
    assert got[0].abs().max() > 0
    assert not got[1:].any()


def test_a_number_without_a_product_keeps_its_place() -> None:
    made = Products(linear_of("torch-linear"))
    made.add_nothing()
    made.add(torch.eye(3), torch.ones(3))
    with torch.inference_mode():
        assert made(torch.zeros(1, 3), 1).tolist() == [[1.0, 1.0, 1.0]]
