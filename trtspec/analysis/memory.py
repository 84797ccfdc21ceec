"""GPU memory: KV cache per token, what a model takes before its cache, and two caches on one GPU.

TensorRT-LLM gives a model's paged KV cache `kv_cache_free_gpu_mem_fraction` of what is free once that model's weights
and buffers are in place, and at most `max_tokens_in_paged_kv_cache` tokens; the smaller one wins (its memory.md).
So with a fraction alone the second of two models gets a share of what the first one left, and load order decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trtspec.analysis.shape import Shape, stages

GIB = 1 << 30
DEFAULT_FRACTION = 0.9
"""TensorRT-LLM's own when none is set."""
TOKENS_PER_BLOCK = 32
"""Passed to trtllm-build by us, since its default changed from 64 to 32 (0.17 to 1.2)."""
MAX_NUM_TOKENS = 8192
"""trtllm-build's default: tokens of all requests that one step handles."""

# Estimates. Each is stated as one wherever it is printed; docs/planning.md compares them with published logs.
CONTEXT = GIB // 2
"""CUDA context, kernels and libraries of one worker process."""
COMMUNICATOR = 2 * GIB // 5
"""NCCL and all-reduce buffers of a rank that has peers."""
ATTENTION_WORKSPACE = GIB // 10
"""Attention workspace: a TensorRT-LLM log grows it to 100,738,816 bytes."""
LOGIT_COPIES = 21
"""Buffers of [batch, vocabulary] float32 in runtime and decoder: 1.14 + 4.35 GB for 2048 × 32,000 in a log."""
RESERVE = 0.05
"""Share of the GPU kept free: fragmentation, CUDA graphs, autotuning."""


def kv_bytes_per_token(shape: Shape, value_bytes: float, tensor: int = 1, layers: int | None = None) -> int:
    """Keys and values of one token on one rank: 2 · layers · kv heads of the rank · head size · bytes of a value.

    A key-value head is copied, not split, when there are more ranks than heads. Windowed layers count in full: an
    upper bound, reached while a sequence is shorter than the window.
    """
    heads = max(1, shape.kv_heads // tensor)
    return round(2 * (shape.layers if layers is None else layers) * heads * shape.head_dim * value_bytes)


def kv_bytes_of_sequence(shape: Shape, value_bytes: float, length: int, tensor: int = 1) -> float:
    """Keys and values that one sequence of `length` tokens keeps on one rank, windows respected."""
    if not shape.windowed:
        return float(length * kv_bytes_per_token(shape, value_bytes, tensor))
    kept = sum(length if window is None else min(length, window) for window in shape.windows)
    return kept / shape.layers * kv_bytes_per_token(shape, value_bytes, tensor)


def activation_bytes(shape: Shape, tokens: int, tensor: int = 1, plain: int = 2) -> int:
    """Estimate of TensorRT's activation memory for `tokens` tokens: one layer's tensors, reused by the next.

    tokens · bytes · (4 · hidden + qkv rows + (mlp matrices - 1) · intermediate), split parts divided by `tensor`.
    """
    qkv = (shape.heads // tensor + 2 * max(1, shape.kv_heads // tensor)) * shape.head_dim
    inner = max(shape.intermediate, shape.top_k * shape.expert_intermediate)
    return tokens * plain * (4 * shape.hidden + qkv + (shape.mlp_matrices - 1) * -(-inner // tensor))


def logits_bytes(vocab: int, batch: int, draft_len: int) -> int:
    """Estimate of logit buffers: those of runtime and decoder, and draft_len + 1 rows per request to verify."""
    return 4 * vocab * batch * (LOGIT_COPIES + draft_len + 1)


def step_tokens(batch: int, draft_len: int) -> int:
    """Tokens one step must have room for: trtllm-build raises its max_num_tokens to batch · (draft_len + 1)."""
    return max(MAX_NUM_TOKENS, batch * (draft_len + 1))


def blocks(tokens: int, size: int = TOKENS_PER_BLOCK) -> int:
    """`tokens` rounded up to whole cache blocks."""
    return -(-tokens // size) * size


@dataclass(frozen=True)
class Load:
    """One model as it loads on one GPU. Bytes; a pipeline stage without layers caches nothing."""

    fixed: int
    """Weights, activations, buffers, context: all it takes before its cache."""
    kv_per_token: int
    fraction: float = DEFAULT_FRACTION
    max_tokens: int | None = None


@dataclass(frozen=True)
class Pool:
    """A KV cache that a model got. `free` is what it found; below zero the model did not even load."""

    free: int
    tokens: int
    nbytes: int


def load_in_order(memory: int, loads: Sequence[Load], block: int = TOKENS_PER_BLOCK) -> list[Pool]:
    """The caches of models that load one after the other on a GPU of `memory` bytes."""
    free, pools = memory, []
    for load in loads:
        free -= load.fixed
        room = int(load.fraction * max(0, free)) // max(1, load.kv_per_token) // block * block
        tokens = room if load.max_tokens is None else min(room, load.max_tokens // block * block)
        pools.append(Pool(free, tokens, tokens * load.kv_per_token))
        free -= pools[-1].nbytes
    return pools


@dataclass(frozen=True)
class Split:
    """Caches of equally many tokens for every model of a GPU, whatever the load order."""

    tokens: int
    fractions: tuple[float, ...]
    """One per model: large enough that `tokens` binds even when the model loads last."""
    left: int
    """Bytes that stay free, the reserve included; below zero nothing fits."""


def split_evenly(memory: int, loads: Sequence[Load], block: int = TOKENS_PER_BLOCK) -> Split:
    """As many tokens as fit in all models' caches together, with RESERVE of `memory` kept free.

    Equally many, because draft and target cache the same conversations. A model that loads last finds its own cache
    and what stays free, so its fraction must be cache ÷ (cache + left).
    """
    budget = memory - reserve(memory) - sum(load.fixed for load in loads)
    tokens = max(0, budget) // max(1, sum(load.kv_per_token for load in loads)) // block * block
    left = memory - sum(load.fixed + tokens * load.kv_per_token for load in loads)
    return Split(tokens, tuple(fraction_for(tokens * load.kv_per_token, left) for load in loads), left)


def reserve(memory: int) -> int:
    """Bytes kept free."""
    return int(RESERVE * memory)


def fraction_for(cache: int, left: int) -> float:
    """cache ÷ (cache + left) rounded up in the fourth digit; 0 without a cache."""
    if cache <= 0:
        return 0.0
    return min(1.0, -(-10_000 * (cache + 1) // (cache + max(0, left))) / 10_000)


def largest_batch(tokens: int, length: int, block: int = TOKENS_PER_BLOCK) -> int:
    """Sequences of `length` tokens that a cache of `tokens` holds."""
    return tokens // blocks(length, block)


def largest_length(tokens: int, batch: int, block: int = TOKENS_PER_BLOCK) -> int:
    """Length that `batch` sequences can have at once in a cache of `tokens`."""
    return tokens // block // batch * block


def layers_of(shape: Shape, pipeline: int, stage: int) -> int:
    """Layers of one pipeline stage."""
    return stages(shape.layers, pipeline)[stage]
