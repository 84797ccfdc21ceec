"""A small Llama in plain torch, for training and for decoding with a cache.

Module names follow Hugging Face's Llama, so `state_dict()` has the keys of the exported file.
"""

# The project's mypy does not look into torch.
# mypy: allow-subclassing-any
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

VOCAB_SIZE = 2048
BOS_ID, EOS_ID, PAD_ID = 0, 1, 2
ROPE_THETA = 10000.0
MAX_POSITIONS = 2048
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """The sizes that tell a draft from a target; everything else is shared."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    tied: bool
    head_dim: int = 32


SHAPES = {
    "target": Shape(layers=6, hidden=256, heads=8, kv_heads=4, ffn=688, tied=False),
    "draft": Shape(layers=2, hidden=128, heads=4, kv_heads=2, ffn=344, tied=True),
}


class Cache:
    """Keys and values per layer. Rolling back means passing a smaller `start` next time."""

    def __init__(self, shape: Shape, batch: int, length: int, dtype: torch.dtype = torch.float32) -> None:
        size = (shape.layers, batch, shape.kv_heads, length, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype)
        self.values = torch.zeros(size, dtype=dtype)

    def put(self, layer: int, start: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new positions and return everything up to them."""
        end = start + keys.shape[2]
        self.keys[layer, :, :, start:end] = keys
        self.values[layer, :, :, start:end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, NORM_EPS)


def rope_table(start: int, length: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines for positions start..start+length, in the half-rotation layout."""
    inverse = ROPE_THETA ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(start, start + length, dtype=torch.float32), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.shape, self.layer = shape, layer
        inner, kv_inner = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, inner, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv_inner, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, shape.hidden, bias=False)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor, cache: Cache | None, start: int) -> Tensor:
        # Plain matmul attention: at these sizes it beats the fused kernel's backward on a CPU.
        batch, length, _ = x.shape
        s = self.shape
        groups = s.heads // s.kv_heads
        q = self.q_proj(x).view(batch, length, s.heads, s.head_dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, s.kv_heads, s.head_dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, s.kv_heads, s.head_dim).transpose(1, 2)
        cos, sin = (part.to(q.dtype) for part in rope)
        q, k = rotate(q, cos, sin) * s.head_dim**-0.5, rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.put(self.layer, start, k, v)
        # Query heads that share a key head are stacked along the length: no repeated keys.
        q = q.reshape(batch, s.kv_heads, groups * length, s.head_dim)
        scores = (q @ k.transpose(2, 3)).view(batch, s.kv_heads, groups, length, -1)
        weights = torch.softmax(scores + mask.to(scores.dtype), dim=-1).to(v.dtype)
        mixed = weights.view(batch, s.kv_heads, groups * length, -1) @ v
        mixed = mixed.view(batch, s.heads, length, s.head_dim).transpose(1, 2)
        out: Tensor = self.o_proj(mixed.reshape(batch, length, -1))
        return out


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden)
        self.self_attn = Attention(shape, layer)
        self.post_attention_layernorm = RMSNorm(shape.hidden)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor, cache: Cache | None, start: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, mask, cache, start)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Backbone(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB_SIZE, shape.hidden)
        self.layers = nn.ModuleList(Block(shape, i) for i in range(shape.layers))
        self.norm = RMSNorm(shape.hidden)


class Llama(nn.Module):
    """`forward` gives logits for every position; `mask` is additive, [.., length, seen]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Backbone(shape)
        self.lm_head = nn.Linear(shape.hidden, VOCAB_SIZE, bias=False)
        self._init_weights()
        if shape.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def _init_weights(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                wide = "embed" in name or "lm_head" in name
                std = 0.02 if wide else parameter.shape[1] ** -0.5 * 0.6
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std *= (2 * self.shape.layers) ** -0.5
                nn.init.normal_(parameter, std=std)

    def forward(self, ids: Tensor, mask: Tensor | None = None, cache: Cache | None = None, start: int = 0) -> Tensor:
        length = ids.shape[1]
        rope = rope_table(start, length, self.shape.head_dim)
        mask = causal_mask(length, start) if mask is None else mask
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, rope, mask, cache, start)
        out: Tensor = self.lm_head(self.model.norm(x))
        return out


def causal_mask(length: int, start: int = 0) -> Tensor:
    """Additive mask: a query at start+i sees positions 0..start+i."""
    return torch.full((length, start + length), -1e4).triu(start + 1)
