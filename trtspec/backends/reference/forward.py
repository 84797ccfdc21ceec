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

LEAST_ROWS: Final[int] = 4
"""Products of fewer rows are padded to this many.

Matrix libraries have other kernels for one, two or three rows, which round differently (and which are slower where the
weights come from memory). Without them a token's logits are the same bits whether it is computed alone, in a verify
run or beside others, so that speculation changes no token even in bfloat16.
"""


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

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        self.linear = linear

    def norm(self, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """RMS norm as w'·x / hypot(|x|, sqrt(eps·H)) with w' = sqrt(H)·w: fewer passes than mean, add, rsqrt."""
        length = torch.linalg.vector_norm(x, 2.0, [-1], True).hypot_(self.floor)
        return torch.div(x.mul(weight), length, out=out)

    def forward(
        self, plan: Tensor, lengths: list[int], slots: list[int], seen: list[int], masks: list[Tensor], wanted: Tensor
    ) -> Tensor:
        """[wanted, vocab] float32 logits.

        `plan` [3, tokens]: token ids, positions, first cache rows. `lengths`, `slots`, `seen`, `masks`: for every run
        of tokens its length, its slot, the positions it sees, and its mask (unused for one token). `wanted`: rows of
        the stacked tokens; empty = all.
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
        normed = torch.zeros(max(n, LEAST_ROWS), x.shape[1], dtype=kind)
        attended = torch.zeros(max(n, LEAST_ROWS), flat_mixed.shape[1], dtype=kind)
        added = torch.empty_like(x)
        padded = torch.zeros(2, n, self.kv_heads, max(self.heads // self.kv_heads, LEAST_ROWS), size)
        for i, cache in enumerate(self.caches):
            w, b = 5 * i, self.biases
            self.norm(x, self.norms[2 * i], normed[:n])
            flat_qkv.copy_(self.linear(normed, self.weights[w], b[w])[:n])
            pairs.mul_(rotation)
            cache.view(-1, size).index_copy_(0, cache_rows, fresh.reshape(-1, size))
            if min(lengths) == 1:
                self.attend_single(queries, mixed, cache, padded, lengths, slots, seen)
            if max(lengths) > 1:
                self.attend_longer(queries, mixed, cache, lengths, slots, seen, masks)
            if i == len(self.caches) - 1 and wanted.shape[0] > 0:  # above the last cache only these rows matter
                n = wanted.shape[0]
                x, flat_mixed = x.index_select(0, wanted), flat_mixed.index_select(0, wanted)
                normed, attended = normed[: max(n, LEAST_ROWS)], attended[: max(n, LEAST_ROWS)]
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
        seen: list[int],
    ) -> None:
        """Runs of one token. Query heads that share a key head are rows of one product, so keys are never repeated."""
        group = self.heads // self.kv_heads
        keys, values = cache.transpose(3, 4).select(0, 0), cache.select(0, 1)
        asked, answered = padded.select(0, 0), padded.select(0, 1)
        asked.narrow(2, 0, group).copy_(queries.unflatten(1, [self.kv_heads, group]))
        begin = 0
        for run, length in enumerate(lengths):
            if length == 1:
                scores = torch.bmm(asked.select(0, begin), keys.select(0, slots[run]).narrow(2, 0, seen[run]))
                value = values.select(0, slots[run]).narrow(1, 0, seen[run])
                torch.bmm(torch.softmax(scores, -1), value, out=answered.select(0, begin))
            begin += length
        mixed.unflatten(1, [self.kv_heads, group]).copy_(answered.narrow(2, 0, group))

    def attend_longer(
        self,
        queries: Tensor,
        mixed: Tensor,
        cache: Tensor,
        lengths: list[int],
        slots: list[int],
        seen: list[int],
        masks: list[Tensor],
    ) -> None:
        """Runs of several tokens; a mask has a row for every (query head of a group, token)."""
        group, size = self.heads // self.kv_heads, self.head_size
        keys, values = cache.transpose(3, 4).select(0, 0), cache.select(0, 1)
        begin = 0
        for run, length in enumerate(lengths):
            if length > 1:
                rows = group * length
                q = queries.narrow(0, begin, length).unflatten(1, [self.kv_heads, group])
                q = q.permute(1, 2, 0, 3).reshape(self.kv_heads, rows, size)
                if rows < LEAST_ROWS:
                    q = torch.nn.functional.pad(q, [0, 0, 0, LEAST_ROWS - rows])
                scores = torch.baddbmm(masks[run], q, keys.select(0, slots[run]).narrow(2, 0, seen[run]))
                result = torch.bmm(torch.softmax(scores, -1), values.select(0, slots[run]).narrow(1, 0, seen[run]))
                result = result[:, :rows].view(self.kv_heads, group, length, size).permute(2, 0, 1, 3)
                mixed.narrow(0, begin, length).unflatten(1, [self.kv_heads, group]).copy_(result)
            begin += length


def compiled(forward: Forward) -> tuple[Forward, bool]:
    """The TorchScript form and True, or `forward` itself and False where this torch cannot compile it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # works in every torch that is supported
            return torch.jit.script(forward), True
    except Exception:  # TorchScript raises many types; the plain form is equivalent and is reported
        return forward, False
