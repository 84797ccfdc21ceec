"""The arithmetic of one step, written so that TorchScript can compile it.

On small models a step is some two hundred tiny operations, and Python's share of each is as large as its work;
compiled, that share halves. The same code runs uncompiled where TorchScript cannot take it. Buffers are made once per
step and used by every layer, because an allocation costs as much as a small operation. What only some families do is
behind Final flags: TorchScript leaves out the branch that is not taken, so that a plain model pays nothing for it.
"""

import warnings
from typing import Final

import torch
from torch import Tensor, nn

from trtspec.backends.reference.attention import Attention
from trtspec.backends.reference.products import Products, padded_rows


def linear_rows(dtype: torch.dtype, memory_bound: bool) -> int:
    """Products with weights of fewer rows are padded to this many.

    In float32 the library rounds a single row differently. In bfloat16 it does not; there, weights that come from
    memory are read about a fifth faster by four rows than by one.
    """
    if dtype == torch.float32:
        return 2
    return 4 if memory_bound else 1


class Forward(nn.Module):  # type: ignore[misc]
    """Weights and cache of a decoder; the residual stream, attention and cache are float32, products have their type.

    Lists hold, per layer: norms (before attention, before the FFN; with `inter_norms` also after each: input, after
    attention, before the FFN, after it), two products (qkv, dense; behind the last layer's, the head), one cache
    tensor [keys or values, slot, kv head, position, head size], its kind. A kind has a table of rotations and a mask
    for each run: with or without a sliding window. `head_weights` norm queries and keys head by head.
    """

    embedding: Tensor
    rotations: list[Tensor]
    kinds: list[int]
    norms: list[Tensor]
    head_weights: list[Tensor]
    caches: list[Tensor]
    cache_scales: list[Tensor]
    final_norm: Tensor
    floor: Tensor
    head_floor: Tensor
    head_rows: Tensor
    heads: int
    kv_heads: int
    head_size: int
    linear_rows: int
    score_rows: int
    cap: float
    several_kinds: Final[bool]
    norms_each: Final[int]
    inter_norms: Final[bool]
    head_norms: Final[bool]
    capped: Final[bool]
    fp8_cache: Final[bool]
    int8_cache: Final[bool]

    def __init__(
        self,
        products: Products,
        attention: Attention,
        ffn: nn.Module,
        several_kinds: bool = False,
        inter_norms: bool = False,
        head_norms: bool = False,
        softcap: float | None = None,
        cache_algo: str | None = None,
    ) -> None:
        super().__init__()
        self.products, self.attention, self.ffn = products, attention, ffn
        self.heads, self.kv_heads, self.head_size = attention.heads, attention.kv_heads, attention.head_size
        self.score_rows = max(attention.group, attention.least_rows)
        self.several_kinds, self.inter_norms, self.head_norms = several_kinds, inter_norms, head_norms
        self.norms_each = 4 if inter_norms else 2
        self.capped, self.cap = softcap is not None, softcap or 0.0
        self.fp8_cache, self.int8_cache = cache_algo == "FP8", cache_algo == "INT8"
        self.rotations, self.kinds, self.norms, self.head_weights = [], [], [], []
        self.caches, self.cache_scales = [], []
        self.head_floor = torch.empty(0)

    def norm(self, x: Tensor, weight: Tensor, floor: Tensor, out: Tensor) -> Tensor:
        """RMS norm as w'·x / hypot(|x|, sqrt(eps·H)) with w' = sqrt(H)·w: fewer passes than mean, add, rsqrt."""
        length = torch.linalg.vector_norm(x, 2.0, [-1], True).hypot_(floor)
        return torch.div(x.mul(weight), length, out=out)

    def forward(
        self,
        plan: Tensor,
        lengths: list[int],
        slots: list[int],
        covers: list[int],
        masks: list[list[Tensor]],
        wanted: Tensor,
    ) -> Tensor:
        """[wanted, vocab] float32 logits.

        `plan` [3, tokens]: token ids, rows of the rotation tables, first cache rows. `lengths`, `slots`, `covers` and
        `masks` (for each kind) as in :meth:`Attention.forward`. `wanted`: rows of the stacked tokens; empty = all.
        """
        tokens, turns, first = plan.unbind(0)
        n, size, kind = tokens.shape[0], self.head_size, self.embedding.dtype
        x = self.embedding.index_select(0, tokens).float()
        rotation, mask = self.rotations[0].index_select(0, turns).unsqueeze(1), masks[0]
        rotations = [rotation]
        if self.several_kinds:
            rotations = [table.index_select(0, turns).unsqueeze(1) for table in self.rotations]
        cache_rows = (first.unsqueeze(1) + self.head_rows).view(-1)
        turned = self.heads + self.kv_heads
        qkv = torch.empty(n, turned + self.kv_heads, size)
        pairs = torch.view_as_complex(qkv.narrow(1, 0, turned).unflatten(2, [size // 2, 2]))
        queries, fresh = qkv.narrow(1, 0, self.heads), qkv.narrow(1, self.heads, 2 * self.kv_heads)
        mixed = torch.empty(n, self.heads, size)
        flat_qkv, flat_mixed = qkv.view(n, -1), mixed.view(n, -1)
        rows = padded_rows(n, self.linear_rows)
        normed = torch.zeros(rows, x.shape[1], dtype=kind)
        attended = torch.zeros(rows, flat_mixed.shape[1], dtype=kind)
        added = torch.empty_like(x)
        padded = torch.zeros(2, n, self.kv_heads, self.score_rows, size)
        for i, cache in enumerate(self.caches):
            if self.several_kinds:
                rotation, mask = rotations[self.kinds[i]], masks[self.kinds[i]]
            self.norm(x, self.norms[self.norms_each * i], self.floor, normed[:n])
            flat_qkv.copy_(self.products(normed, 2 * i)[:n])
            if self.head_norms:
                self.norm_heads(qkv.narrow(1, 0, turned), i)
            pairs.mul_(rotation)
            if self.fp8_cache or self.int8_cache:
                fresh.copy_(self.rounded(fresh, self.cache_scales[i]))
            cache.view(-1, size).index_copy_(0, cache_rows, fresh.reshape(-1, size))
            self.attention(queries, mixed, cache, padded, lengths, slots, covers, mask)
            if i == len(self.caches) - 1 and wanted.shape[0] > 0:  # above the last cache only these rows matter
                n = wanted.shape[0]
                x, flat_mixed = x.index_select(0, wanted), flat_mixed.index_select(0, wanted)
                rows = padded_rows(n, self.linear_rows)
                normed, attended, added = normed[:rows], attended[:rows], added[:n]
            attended[:n].copy_(flat_mixed)
            self.add(x, added, self.products(attended, 2 * i + 1), n, self.norms_each * i + 1)
            self.norm(x, self.norms[self.norms_each * i + self.norms_each // 2], self.floor, normed[:n])
            self.add(x, added, self.ffn(normed, n, i), n, self.norms_each * i + 3)
        self.norm(x, self.final_norm, self.floor, normed[:n])
        logits = self.products(normed, 2 * len(self.caches))[:n].float()
        if self.capped:
            logits = logits.div_(self.cap).tanh_().mul_(self.cap)
        return logits

    def add(self, x: Tensor, added: Tensor, made: Tensor, n: int, norm: int) -> None:
        """Add the first n rows of `made` to the residual stream, with `inter_norms` normed by that norm."""
        added.copy_(made[:n])
        if self.inter_norms:
            self.norm(added, self.norms[norm], self.floor, added)
        x.add_(added)

    def norm_heads(self, heads: Tensor, layer: int) -> None:
        """RMS norm of each query and key; `heads` [tokens, queries and keys, size], in place."""
        self.norm(heads, self.head_weights[layer], self.head_floor, heads)

    def rounded(self, fresh: Tensor, scale: Tensor) -> Tensor:
        """Keys and values [tokens, 2 · kv heads, size] as an 8-bit cache holds them; `scale` [2 · kv heads, 1]."""
        codes = fresh.div(scale)
        if self.fp8_cache:
            return codes.clamp_(-448.0, 448.0).to(torch.float8_e4m3fn).float().mul_(scale)
        return codes.round_().clamp_(-128.0, 127.0).mul_(scale)


def compiled(forward: Forward) -> tuple[Forward, bool]:
    """The TorchScript form and True, or `forward` itself and False where this torch cannot compile it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # works in every torch that is supported
            return torch.jit.script(forward), True
    except Exception:  # TorchScript raises many types; the plain form is equivalent and is reported
        return forward, False
