"""From a checkpoint's tensors to the modules that compute with them, one tensor at a time."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from trtspec.backends.reference.attention import Attention
from trtspec.backends.reference.cache import KVCache
from trtspec.backends.reference.config import LinearKind
from trtspec.backends.reference.emulation import EmulatedProducts
from trtspec.backends.reference.ffn import Ffn, Mixture
from trtspec.backends.reference.forward import Forward, linear_rows
from trtspec.backends.reference.linear import linear_of
from trtspec.backends.reference.modelconfig import Experts, ModelConfig
from trtspec.backends.reference.products import Products
from trtspec.backends.reference.rope import interleave, rotations
from trtspec.backends.reference.weights import EMBEDDING, FINAL_NORM, LAYER, LM_HEAD, Weights, open_weights

Kind = tuple[int | None, bool]
"""A layer's window in tokens, and whether it has the local rope."""


def layer_kinds(config: ModelConfig) -> list[Kind]:
    """The kinds of layers that a model has, in the order of their first layer."""
    return list(dict.fromkeys(_kind(config, i) for i in range(config.layers)))


def _kind(config: ModelConfig, layer: int) -> Kind:
    window = config.windows[layer] if config.windows else None
    return window, window is not None and config.local_base is not None


def load_forward(config: ModelConfig, folder: Path, dtype: torch.dtype, kind: LinearKind, cache: KVCache) -> Forward:
    """Read all weights of `folder`. ModelFileError: a tensor is missing, does not fit, is NaN, or has no place."""
    with open_weights(folder, config) as weights:
        forward = _Loader(config, weights, dtype, kind).load()
        weights.finish()
    forward.rotations = [
        torch.from_numpy(rotations(config, cache.length, folder, local)) for _, local in layer_kinds(config)
    ]
    forward.caches, forward.head_rows = cache.layers, cache.head_rows
    return forward


class _Loader:
    def __init__(self, config: ModelConfig, weights: Weights, dtype: torch.dtype, kind: LinearKind) -> None:
        self._config, self._weights, self._dtype, self._kind = config, weights, dtype, kind
        turned = config.heads + config.kv_heads
        self._order = torch.arange(config.qkv_rows)
        self._order[: turned * config.head_size] = torch.from_numpy(
            interleave(turned, config.head_size, config.rotary_dim)
        )

    def load(self) -> Forward:
        c = self._config
        kinds = layer_kinds(c)
        f = Forward(
            self._products(),
            Attention(c.heads, c.kv_heads, c.head_size, c.attn_softcap),
            self._ffn(c.experts),
            several_kinds=len(kinds) > 1,
            inter_norms=c.inter_norms,
            head_norms=c.head_norms,
            softcap=c.final_softcap,
            cache_algo=c.cache_algo,
        )
        f.linear_rows = linear_rows(self._dtype, c.memory_bound)
        f.kinds = [kinds.index(_kind(c, i)) for i in range(c.layers)]
        f.floor = torch.tensor([math.sqrt(c.norm_epsilon * c.hidden)])
        f.head_floor = torch.tensor([math.sqrt(c.norm_epsilon * c.head_size)])
        f.embedding = self._embedding()
        f.final_norm = self._norm(FINAL_NORM)
        for index in range(c.layers):
            self._layer(f, index)
        head = LM_HEAD if self._weights.has(LM_HEAD) else EMBEDDING
        self._add(f.products, head, c.vocab_size, c.hidden)
        return f

    def _products(self) -> Products:
        linear = linear_of(self._kind, gelu=self._config.activation == "gelu")
        return EmulatedProducts(linear) if self._config.quant_algo is not None else Products(linear)

    def _ffn(self, experts: Experts | None) -> Ffn | Mixture:
        if experts is None:
            return Ffn(self._products())
        places = [sum(experts.sparse[:i]) if here else -1 for i, here in enumerate(experts.sparse)]
        return Mixture(
            self._products(), Products(linear_of(self._kind)), self._products(), places, experts.count,
            experts.top_k, experts.normalize, linear_rows(self._dtype, self._config.memory_bound),
        )  # fmt: skip

    def _embedding(self) -> Tensor:
        """Scaled here, once: sqrt(hidden) is rounded to the type it multiplies, as transformers does."""
        c = self._config
        table = self._weights.get(EMBEDDING, c.vocab_size, c.hidden).to(self._dtype)
        return table * torch.tensor(math.sqrt(c.hidden), dtype=self._dtype) if c.scaled_embeddings else table

    def _layer(self, f: Forward, index: int) -> None:
        c, name = self._config, LAYER.format(index)
        f.norms.append(self._norm(f"{name}input_layernorm.weight"))
        f.norms.append(self._norm(f"{name}post_layernorm.weight"))
        if c.inter_norms:
            f.norms.append(self._norm(f"{name}pre_feedforward_layernorm.weight"))
            f.norms.append(self._norm(f"{name}post_feedforward_layernorm.weight"))
        if c.head_norms:
            f.head_weights.append(self._head_norm(name))
        if c.cache_algo is not None:
            f.cache_scales.append(self._cache_scale(index))
        self._add(f.products, f"{name}attention.qkv.weight", c.qkv_rows, c.hidden, self._order, bias=c.attn_bias)
        # Qwen2 has biases on queries, keys and values only: here the file decides.
        self._add(f.products, f"{name}attention.dense.weight", c.hidden, c.heads * c.head_size)
        self._feed_forward(f.ffn, index, f"{name}mlp.")

    def _feed_forward(self, ffn: Ffn | Mixture, index: int, name: str) -> None:
        c = self._config
        if isinstance(ffn, Mixture) and ffn.places[index] >= 0:
            for _ in range(3):
                ffn.dense.add_nothing()
            assert c.experts is not None
            self._experts(ffn, name, c.experts)
            return
        products = ffn.dense if isinstance(ffn, Mixture) else ffn.products
        if c.fused_ffn:
            rows = torch.arange(2 * c.intermediate)
            up, gate = rows[: c.intermediate], rows[c.intermediate :]
            self._add(products, f"{name}fc.weight", len(rows), c.hidden, gate)
            self._add(products, f"{name}fc.weight", len(rows), c.hidden, up)
        else:
            self._add(products, f"{name}fc.weight", c.intermediate, c.hidden, bias=c.mlp_bias)
            self._add(products, f"{name}gate.weight", c.intermediate, c.hidden, bias=c.mlp_bias)
        self._add(products, f"{name}proj.weight", c.hidden, c.intermediate, bias=c.mlp_bias)

    def _experts(self, ffn: Mixture, name: str, experts: Experts) -> None:
        """mlp.fc [experts, [up; gate], hidden], mlp.proj [experts, hidden, intermediate]."""
        c, inner = self._config, experts.intermediate
        router = self._weights.get(f"{name}router.weight", experts.count, c.hidden)
        ffn.routing.add(router.float(), None)
        both = self._weights.get(f"{name}fc.weight", experts.count, 2 * inner, c.hidden)
        down = self._weights.get(f"{name}proj.weight", experts.count, c.hidden, inner)
        for expert in range(experts.count):
            self._pack(ffn.experts, both[expert, inner:], None, f"{name}fc")
            self._pack(ffn.experts, both[expert, :inner], None, f"{name}fc")
            self._pack(ffn.experts, down[expert], None, f"{name}proj")

    def _add(
        self, products: Products, name: str, out: int, into: int, rows: Tensor | None = None, bias: bool = False
    ) -> None:
        """The next product: weight `name`, and its bias if it has one (`bias`: it must); `rows` gives another order."""
        linear = name.removesuffix(".weight")
        weight = self._weights.get(name, out, into)
        added = self._weights.optional(f"{linear}.bias", out, needed=bias)
        if rows is not None:
            weight, added = weight[rows], None if added is None else added[rows]
        self._pack(products, weight, added, linear)

    def _pack(self, products: Products, weight: Tensor, bias: Tensor | None, linear: str) -> None:
        weight = weight.to(self._dtype).contiguous()
        bias = None if bias is None else bias.to(self._dtype)
        if isinstance(products, EmulatedProducts):
            products.add(weight, bias, self._weights.tensors.inputs(linear))
        else:
            products.add(weight, bias)

    def _norm(self, name: str) -> Tensor:
        return self._weights.get(name, self._config.hidden).float() * math.sqrt(self._config.hidden)

    def _head_norm(self, name: str) -> Tensor:
        """[heads + kv heads, head size], in the order of the turned pairs."""
        c = self._config
        order = torch.from_numpy(interleave(1, c.head_size, c.rotary_dim))
        each = [(f"{name}attention.q_layernorm.weight", c.heads), (f"{name}attention.k_layernorm.weight", c.kv_heads)]
        rows = [self._weights.get(n, c.head_size).float()[order].expand(count, -1) for n, count in each]
        return torch.cat(rows) * math.sqrt(c.head_size)

    def _cache_scale(self, index: int) -> Tensor:
        """[2 · kv heads, 1]; keys stand in the cache times query_scalar**-0.25, see :func:`rope.rotations`."""
        c = self._config
        scale = self._weights.tensors.cache_scale(index)
        key = scale * (c.query_scalar or c.head_size) ** -0.25
        return torch.tensor([key] * c.kv_heads + [scale] * c.kv_heads, dtype=torch.float32).unsqueeze(1)
