"""Both kinds of products, plain and compiled, against a float64 product."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from trtspec.backends.reference.linear import Linear, PackedLinear, available_linear, linear_of  # noqa: E402
from trtspec.backends.reference.products import padded_rows  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")]


def packed_or_skip(dtype: object) -> None:
    if available_linear(dtype) != "mkldnn-prepacked":  # type: ignore[arg-type]
        pytest.skip("this CPU or torch has no packed linears of that type")


@pytest.mark.parametrize("kind", ["mkldnn-prepacked", "torch-linear"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gelu", [False, True])
def test_products(kind: str, dtype: str, tolerance: float, rows: int, bias: bool, gelu: bool) -> None:
    t = getattr(torch, dtype)
    if kind == "mkldnn-prepacked":
        packed_or_skip(t)
    torch.manual_seed(0)
    x, fc, gate = (torch.randn(n, 24).to(t) for n in (rows, 32, 32))
    b = torch.randn(32).to(t) if bias else None
    linear = linear_of(kind, gelu)  # type: ignore[arg-type]
    a = torch.nn.functional.linear(x.double(), fc.double(), None if b is None else b.double())
    g = torch.nn.functional.linear(x.double(), gate.double(), None if b is None else b.double())
    act = torch.nn.functional.gelu(a, approximate="tanh") if gelu else torch.nn.functional.silu(a)
    expected = act * g
    with torch.inference_mode():
        w, v = linear.pack(fc), linear.pack(gate)
        for form in (linear, torch.jit.script(linear)):
            torch.testing.assert_close(form(x, w, b).double(), a, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(
            linear.gated(x, w, b, x, v, b).double(), expected, rtol=5 * tolerance, atol=5 * tolerance
        )
        twice = linear.gated(x, w, b, 2 * x, v, None).double()  # the two factors may have inputs of their own
        other = act * 2 * torch.nn.functional.linear(x.double(), gate.double())
        torch.testing.assert_close(twice, other, rtol=5 * tolerance, atol=5 * tolerance)


def test_kinds_are_what_they_say() -> None:
    assert type(linear_of("torch-linear")) is Linear
    assert isinstance(linear_of("mkldnn-prepacked"), PackedLinear)


@pytest.mark.parametrize("fault", [RuntimeError("no such operator"), AttributeError("gone"), TypeError("arguments")])
def test_operators_that_fail_are_not_chosen(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def pack(*_: object) -> None:
        raise fault

    monkeypatch.setattr(PackedLinear, "pack", pack)
    assert available_linear(torch.float32) == "torch-linear"


def test_operators_that_compute_something_else_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    packed_or_skip(torch.float32)
    monkeypatch.setattr(PackedLinear, "gated", lambda self, x, *_: torch.zeros(len(x), 32))
    assert available_linear(torch.float32) == "torch-linear"


@pytest.mark.parametrize("wrong", ["swish", "gelu"])
def test_an_activation_that_differs_is_not_chosen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_or_skip(torch.float32)
    right = PackedLinear.gated

    def gated(self: PackedLinear, *inputs: object) -> object:
        found = right(self, *inputs)  # type: ignore[arg-type]
        return 2 * found if self.gelu == (wrong == "gelu") else found

    monkeypatch.setattr(PackedLinear, "gated", gated)
    assert available_linear(torch.float32) == "torch-linear"


def test_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert available_linear(torch.bfloat16) == "torch-linear"


@given(rows=st.integers(1, 3000), least=st.sampled_from([1, 2, 4]))
def test_rows_are_padded_by_little_and_to_few_sizes(rows: int, least: int) -> None:
    padded = padded_rows(rows, least)
    assert max(rows, least) <= padded <= max(rows * 1.25, rows + 3)
    assert padded == padded_rows(padded, least)


def test_a_server_meets_few_sizes() -> None:
    assert len({padded_rows(rows, 1) for rows in range(1, 513)}) <= 48
