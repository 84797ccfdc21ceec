"""Matrix products with fixed weights: packed once for oneDNN, or plain F.linear where that is not possible.

The packed form avoids re-laying the weights out on every call: on CPUs it costs about half of F.linear in bfloat16, and
it keeps a step over several tokens almost as cheap as one over a single token, which speculation lives on.
"""

import os
from typing import Final

import torch
from torch import Tensor, nn

from trtspec.backends.reference.config import LinearKind

ISA = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_FP16"
"""Everything below AMX, whose products round a single row otherwise than the same row among others. A token must have
the same logits alone, in a verify step and in a batch; that costs a third of the speed of eight large rows at once."""
# oneDNN asks once, at its first product.
os.environ.setdefault(ISA, WITHOUT_AMX)


class Linear(nn.Module):  # type: ignore[misc]
    """F.linear. TorchScript compiles `forward` and `gated`; a Final flag decides which branch of it exists at all."""

    gelu: Final[bool]

    def __init__(self, gelu: bool = False) -> None:
        """`gelu`: the activation of `gated` is gelu in its tanh form; else silu."""
        super().__init__()
        self.gelu = gelu

    def pack(self, weight: Tensor) -> Tensor:
        """`weight` [out, in] in the form that `forward` wants."""
        return weight

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[rows, in] -> [rows, out], in the weight's dtype."""
        return torch.nn.functional.linear(x, weight, bias)

    def gated(
        self, x: Tensor, fc: Tensor, fc_bias: Tensor | None, y: Tensor, gate: Tensor, gate_bias: Tensor | None
    ) -> Tensor:
        """act(fc(x)) · gate(y); `y` is `x` unless the two round their inputs each in its own way."""
        linear = torch.nn.functional.linear
        if self.gelu:
            act = torch.nn.functional.gelu(linear(x, fc, fc_bias), approximate="tanh")
        else:
            act = torch.nn.functional.silu(linear(x, fc, fc_bias))
        return act.mul_(linear(y, gate, gate_bias))


class PackedLinear(Linear):
    """oneDNN with prepacked weights: private operators of torch, so :func:`available_linear` tries them first."""

    def pack(self, weight: Tensor) -> Tensor:
        """A packed copy, blind to torch's other operators."""
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 1)
        return packed

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[rows, in] -> [rows, out], in the weight's dtype."""
        nothing: list[int | float | complex | None] = []  # TorchScript's spelling of Scalar?[]
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", nothing, "")
        return out

    def gated(
        self, x: Tensor, fc: Tensor, fc_bias: Tensor | None, y: Tensor, gate: Tensor, gate_bias: Tensor | None
    ) -> Tensor:
        """act(fc(x)) · gate(y); both are fused into the products, where torch's bfloat16 silu would cost as much."""
        nothing: list[int | float | complex | None] = []
        name, form = ("gelu", "tanh") if self.gelu else ("swish", "")
        act: Tensor = torch.ops.mkldnn._linear_pointwise(x, fc, fc_bias, name, nothing, form)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(y, act, gate, gate_bias, "mul")
        return out


def linear_of(kind: LinearKind, gelu: bool = False) -> Linear:
    """The product of that kind, gated by gelu (tanh form) or silu."""
    return PackedLinear(gelu) if kind == "mkldnn-prepacked" else Linear(gelu)


def available_linear(dtype: torch.dtype) -> LinearKind:
    """The fastest kind that this torch and this CPU have; proved on a small product, not guessed from versions."""
    if not torch.backends.mkldnn.is_available():
        return "torch-linear"
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return "torch-linear"
    weight = torch.linspace(-1, 1, 32 * 16).reshape(32, 16).to(dtype)
    probe = torch.linspace(-1, 1, 3 * 16).reshape(3, 16).to(dtype)
    silu, gelu = PackedLinear(), PackedLinear(gelu=True)
    try:
        packed = silu.pack(weight)
        plain = silu(probe, packed, None)
        gated = [linear.gated(probe, packed, None, probe, packed, None) for linear in (silu, gelu)]
    except (RuntimeError, AttributeError, TypeError):  # private operators: any torch may lack or change them
        return "torch-linear"
    product = torch.nn.functional.linear(probe.float(), weight.float())
    acts = torch.nn.functional.silu(product), torch.nn.functional.gelu(product, approximate="tanh")
    same = torch.allclose(plain.float(), product, rtol=0.02, atol=0.05)
    for found, act in zip(gated, acts, strict=True):
        same &= torch.allclose(found.float(), act * product, rtol=0.02, atol=0.1)
    return "mkldnn-prepacked" if same else "torch-linear"
