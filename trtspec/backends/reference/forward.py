"""The arithmetic of one step, written so that TorchScript can compile it.

On small models a step is some two hundred tiny operations, and Python's share of each is as large as its work;
compiled, that share halves. The same code runs uncompiled where TorchScript cannot take it. Buffers are made once per
step and used by every layer, because an allocation costs as much as a small operation.
"""

import warnings
from typing import Final

import torch
from torch import Tensor, nn

from trtspec.backends.reference.linear import Linear

# A token's logits must be the same bits whether it is computed alone, in a verify run, beside others or after reuse, so
# that speculation changes no token even in bfloat16. Matrix libraries have other kernels, which round differently, for
# very small products, and cut long sums at places that depend on the length; these three keep all products on one path.
LEAST_ROWS: Final[int] = 4
"""Products with keys and values of fewer rows are padded to this many. For those with weights see `linear_rows`."""
BLOCK: Final[int] = 128
"""Attention sums values over blocks of so many positions."""
LEAST_KEYS: Final[int] = 16
"""A block covers at least this many positions; those not seen yet are masked."""


def covered(seen: int) -> int:
    """Cached positions that attention covers for a run that sees `seen` of them."""
    rest = seen % BLOCK
    return seen - rest + LEAST_KEYS if 0 < rest < LEAST_KEYS else seen


def linear_rows(dtype: torch.dtype, memory_bound: bool) -> int:
    """Products with weights of fewer rows are padded to this many.

    In float32 the library rounds a single row differently. In bfloat16 it does not; there, weights that come from
    memory are read about a fifth faster by four rows than by one.
    """
    if dtype == torch.float32:
        return 2
    return 4 if memory_bound else 1


class Forward(nn.Module):  # type: ignore[misc]
    """Weights and cache of a Llama; the residual stream, attention and cache are float32, linears have their own type.

    Lists hold, per layer: norms (input, post), weights and biases (qkv, dense, fc, gate, proj), one cache tensor
    [keys or values, slot, kv head, position, head size].
    """

    embedding: Tensor
    rotations: Tensor
    norms: list[Tensor]
    weights: list[Tensor]
    biases: list[Tensor | None]
    caches: list[Tensor]
    final_norm: Tensor
    head: Tensor
    floor: Tensor
    head_rows: Tensor
    heads: int
    kv_heads: int
    head_size: int
    linear_rows: int
    least_rows: int
    block: int

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.linear = linear
        self.least_rows, self.block = LEAST_ROWS, BLOCK

    def norm(self, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """RMS norm as w'·x / hypot(|x|, sqrt(eps·H)) with w' = sqrt(H)·w: fewer passes than mean, add, rsqrt."""
        length = torch.linalg.vector_norm(x, 2.0, [-1], True).hypot_(self.floor)
        return torch.div(x.mul(weight), length, out=out)

    def forward(
        self, plan: Tensor, lengths: list[int], slots: list[int], covers: list[int], masks: list[Tensor], wanted: Tensor
    ) -> Tensor:
        """[wanted, vocab] float32 logits.

        `plan` [3, tokens]: token ids, positions, first cache rows. `lengths`, `slots`, `covers`, `masks`: for every
        run of tokens its length, its slot, the cached positions it covers (see `covered`), and its mask, empty for
        one token that sees all that it covers. `wanted`: rows of the stacked tokens; empty = all.
        """
        tokens, positions, rows = plan.unbind(0)
        n, size, kind = tokens.shape[0], self.head_size, self.embedding.dtype
        x = self.embedding.index_select(0, tokens).float()
        rotation = self.rotations.index_select(0, positions).unsqueeze(1)
        cache_rows = (rows.unsqueeze(1) + self.head_rows).view(-1)
        turned = self.heads + self.kv_heads
        qkv = torch.empty(n, turned + self.kv_heads, size)
        pairs = torch.view_as_complex(qkv.narrow(1, 0, turned).unflatten(2, [size // 2, 2]))
        queries, fresh = qkv.narrow(1, 0, self.heads), qkv.narrow(1, self.heads, 2 * self.kv_heads)
        mixed = torch.empty(n, self.heads, size)
        flat_qkv, flat_mixed = qkv.view(n, -1), mixed.view(n, -1)
        normed = torch.zeros(max(n, self.linear_rows), x.shape[1], dtype=kind)
        attended = torch.zeros(max(n, self.linear_rows), flat_mixed.shape[1], dtype=kind)
        added = torch.empty_like(x)
        padded = torch.zeros(2, n, self.kv_heads, max(self.heads // self.kv_heads, self.least_rows), size)
        for i, cache in enumerate(self.caches):
            w, b = 5 * i, self.biases
            self.norm(x, self.norms[2 * i], normed[:n])
            flat_qkv.copy_(self.linear(normed, self.weights[w], b[w])[:n])
            pairs.mul_(rotation)
            cache.view(-1, size).index_copy_(0, cache_rows, fresh.reshape(-1, size))
            if min(lengths) == 1:
                self.attend_single(queries, mixed, cache, padded, lengths, slots, covers, masks)
            if max(lengths) > 1:
                self.attend_longer(queries, mixed, cache, lengths, slots, covers, masks)
            if i == len(self.caches) - 1 and wanted.shape[0] > 0:  # above the last cache only these rows matter
                n = wanted.shape[0]
                x, flat_mixed = x.index_select(0, wanted), flat_mixed.index_select(0, wanted)
                normed, attended = normed[: max(n, self.linear_rows)], attended[: max(n, self.linear_rows)]
                added = added[:n]
            attended[:n].copy_(flat_mixed)
            x.add_(added.copy_(self.linear(attended, self.weights[w + 1], b[w + 1])[:n]))
            self.norm(x, self.norms[2 * i + 1], normed[:n])
            wide = self.linear.gated(normed, self.weights[w + 2], b[w + 2], self.weights[w + 3], b[w + 3])
            x.add_(added.copy_(self.linear(wide, self.weights[w + 4], b[w + 4])[:n]))
        self.norm(x, self.final_norm, normed[:n])
        return self.linear(normed, self.head, None)[:n].float()

    def attend_single(
        self,
        queries: Tensor,
        mixed: Tensor,
        cache: Tensor,
        padded: Tensor,
        lengths: list[int],
        slots: list[int],
        covers: list[int],
        masks: list[Tensor],
    ) -> None:
        """Runs of one token. Query heads that share a key head are rows of one product, so keys are never repeated."""
        group = self.heads // self.kv_heads
        keys, values = cache.transpose(3, 4).select(0, 0), cache.select(0, 1)
        asked, answered = padded.select(0, 0), padded.select(0, 1)
        asked.narrow(2, 0, group).copy_(queries.unflatten(1, [self.kv_heads, group]))
        begin = 0
        for run, length in enumerate(lengths):
            if length == 1:
                q, key = asked.select(0, begin), keys.select(0, slots[run])
                if masks[run].shape[0] > 0:
                    scores = torch.baddbmm(masks[run][: q.shape[1]], q, key.narrow(2, 0, covers[run]))
                else:
                    scores = torch.bmm(q, key.narrow(2, 0, covers[run]))
                self.mix(scores, values.select(0, slots[run]), answered.select(0, begin))
            begin += length
        mixed.unflatten(1, [self.kv_heads, group]).copy_(answered.narrow(2, 0, group))

    def attend_longer(
        self,
        queries: Tensor,
        mixed: Tensor,
        cache: Tensor,
        lengths: list[int],
        slots: list[int],
        covers: list[int],
        masks: list[Tensor],
    ) -> None:
        """Runs of several tokens, neighbours of one length rearranged together. Mask rows: (query head, token)."""
        group, size = self.heads // self.kv_heads, self.head_size
        keys, values = cache.transpose(3, 4).select(0, 0), cache.select(0, 1)
        run, begin = 0, 0
        while run < len(lengths):
            length, count = lengths[run], 1
            while run + count < len(lengths) and lengths[run + count] == length:
                count += 1
            if length > 1:
                rows = group * length
                split = [count, length, self.kv_heads, group, size]
                q = queries.narrow(0, begin, count * length).reshape(split).permute(0, 2, 3, 1, 4)
                q = q.reshape(count, self.kv_heads, rows, size)
                if rows < self.least_rows:
                    q = torch.nn.functional.pad(q, [0, 0, 0, self.least_rows - rows])
                result = torch.empty_like(q)
                for i in range(count):
                    key = keys.select(0, slots[run + i]).narrow(2, 0, covers[run + i])
                    scores = torch.baddbmm(masks[run + i][: q.shape[2]], q.select(0, i), key)
                    self.mix(scores, values.select(0, slots[run + i]), result.select(0, i))
                result = result.narrow(2, 0, rows).unflatten(2, [group, length]).permute(0, 3, 1, 2, 4)
                mixed.narrow(0, begin, count * length).view(split).copy_(result)
            run, begin = run + count, begin + count * length

    def mix(self, scores: Tensor, values: Tensor, out: Tensor) -> None:
        """`out` = softmax(scores) · values, summed in blocks of fixed positions."""
        weights = torch.softmax(scores, -1)
        covered = weights.shape[2]
        first = min(covered, self.block)
        torch.bmm(weights.narrow(2, 0, first), values.narrow(1, 0, first), out=out)
        for at in range(self.block, covered, self.block):
            count = min(self.block, covered - at)
            out.baddbmm_(weights.narrow(2, at, count), values.narrow(1, at, count))


def compiled(forward: Forward) -> tuple[Forward, bool]:
    """The TorchScript form and True, or `forward` itself and False where this torch cannot compile it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # works in every torch that is supported
            return torch.jit.script(forward), True
    except Exception:  # TorchScript raises many types; the plain form is equivalent and is reported
        return forward, False
