"""Attention of a ragged batch of runs over their own caches, written so that TorchScript can compile it.

A token's result must be the same bits whether it is computed alone, in a verify run, beside others or after reuse, so
that speculation changes no token even in bfloat16. Matrix libraries have other kernels, which round differently, for
very small products, and cut long sums at places that depend on the length; LEAST_ROWS, BLOCK and LEAST_KEYS keep all
products on one path.
"""

from typing import Final

import torch
from torch import Tensor, nn

LEAST_ROWS: Final[int] = 4
"""Products with keys and values of fewer rows are padded to this many. For those with weights see `linear_rows`."""
BLOCK: Final[int] = 128
"""Values are summed over blocks of so many positions."""
LEAST_KEYS: Final[int] = 16
"""A block covers at least this many positions; those not seen yet are masked."""


def covered(seen: int) -> int:
    """Cached positions that attention covers for a run that sees `seen` of them."""
    rest = seen % BLOCK
    return seen - rest + LEAST_KEYS if 0 < rest < LEAST_KEYS else seen


class Attention(nn.Module):  # type: ignore[misc]
    """softmax(q · k) · v; queries and keys come with the scale in them. No parameters: caches and masks are given.

    With a soft-cap c the scores are c · tanh(scores / c) before they are masked (Gemma 2).
    """

    heads: int
    kv_heads: int
    head_size: int
    group: int
    least_rows: int
    block: int
    capped: Final[bool]
    cap: float

    def __init__(self, heads: int, kv_heads: int, head_size: int, softcap: float | None) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_size = heads, kv_heads, head_size
        self.group = heads // kv_heads
        self.least_rows, self.block = LEAST_ROWS, BLOCK
        self.capped, self.cap = softcap is not None, softcap or 0.0

    def forward(
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
        """Fill `mixed` [tokens, heads, size]; `queries` has its shape, `padded` is room for runs of one token.

        For every run of tokens: its length, its slot, the cached positions it covers (see `covered`), and its mask
        [at least group · length, cover], empty for one token that sees all that it covers.
        """
        if min(lengths) == 1:
            self.single(queries, mixed, cache, padded, lengths, slots, covers, masks)
        if max(lengths) > 1:
            self.longer(queries, mixed, cache, lengths, slots, covers, masks)

    def single(
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
        group = self.group
        keys, values = cache.transpose(3, 4).select(0, 0), cache.select(0, 1)
        asked, answered = padded.select(0, 0), padded.select(0, 1)
        asked.narrow(2, 0, group).copy_(queries.unflatten(1, [self.kv_heads, group]))
        begin = 0
        for run, length in enumerate(lengths):
            if length == 1:
                key = keys.select(0, slots[run]).narrow(2, 0, covers[run])
                scores = self.scores(asked.select(0, begin), key, masks[run])
                self.mix(scores, values.select(0, slots[run]), answered.select(0, begin))
            begin += length
        mixed.unflatten(1, [self.kv_heads, group]).copy_(answered.narrow(2, 0, group))

    def longer(
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
        group, size = self.group, self.head_size
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
                    scores = self.scores(q.select(0, i), key, masks[run + i])
                    self.mix(scores, values.select(0, slots[run + i]), result.select(0, i))
                result = result.narrow(2, 0, rows).unflatten(2, [group, length]).permute(0, 3, 1, 2, 4)
                mixed.narrow(0, begin, count * length).view(split).copy_(result)
            run, begin = run + count, begin + count * length

    def scores(self, q: Tensor, key: Tensor, mask: Tensor) -> Tensor:
        """[kv heads, rows, covered] q · k, capped, with the mask added."""
        if self.capped:
            scores = torch.bmm(q, key).div_(self.cap).tanh_().mul_(self.cap)
            return scores.add_(mask[: q.shape[1]]) if mask.shape[0] > 0 else scores
        if mask.shape[0] > 0:
            return torch.baddbmm(mask[: q.shape[1]], q, key)
        return torch.bmm(q, key)

    def mix(self, scores: Tensor, values: Tensor, out: Tensor) -> None:
        """`out` = softmax(scores) · values, summed in blocks of fixed positions."""
        weights = torch.softmax(scores, -1)
        covered = weights.shape[2]
        first = min(covered, self.block)
        torch.bmm(weights.narrow(2, 0, first), values.narrow(1, 0, first), out=out)
        for at in range(self.block, covered, self.block):
            count = min(self.block, covered - at)
            out.baddbmm_(weights.narrow(2, at, count), values.narrow(1, at, count))
