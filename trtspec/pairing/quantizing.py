"""Which weights and KV caches TensorRT-LLM runs on which GPU generation, and which of them a target can have.

A draft-target *target* must reuse its KV cache, which needs paged-context attention; builder.py (0.17 - 1.2.1) drops
that, with a warning, for an INT8 cache, and for an FP8 cache unless the weights are FP8, W4A8-AWQ or NVFP4. A *draft*
in those cells only loses the reuse of its prompt.
"""

from __future__ import annotations

from trtspec.checkpoint.formats import FORMATS, KV_ALGOS

OLDEST_SM = 80
FP8_SM = 89
FP8_ATTENTION = ("fp8", "w4a8_awq", "nvfp4")
"""Weights with which an FP8 cache keeps paged-context attention."""
GENERATIONS = {80: "Ampere", 86: "Ampere", 89: "Ada", 90: "Hopper", 100: "Blackwell", 103: "Blackwell",
               120: "Blackwell", 121: "Blackwell"}  # fmt: skip


def generation(sm: int) -> str:
    """Hopper (SM 90)."""
    return f"{GENERATIONS.get(sm, 'GPU')} (SM {sm})"


def weights_problem(weights: str, sm: int) -> str | None:
    """Why a GPU of compute capability `sm` cannot run these weights."""
    first, last = FORMATS[weights].sm
    first = max(first, OLDEST_SM)
    if sm < first:
        return f"{weights} weights need {generation(first)} or newer"
    if sm > last:
        return f"{weights} weights run up to {generation(last)}; TensorRT-LLM refuses them on newer GPUs"
    return None


def cache_problem(kv_cache: str, sm: int) -> str | None:
    """Why a GPU cannot hold such a KV cache."""
    if kv_cache == "fp8" and sm < FP8_SM:
        return f"an FP8 KV cache needs {generation(FP8_SM)} or newer"
    if kv_cache == "int8" and sm >= 100:
        return "TensorRT-LLM refuses an INT8 KV cache on Blackwell"
    return None


def loses_reuse(weights: str, kv_cache: str) -> str | None:
    """Why TensorRT-LLM would drop paged-context attention, and with it the reuse of the KV cache."""
    if kv_cache == "int8":
        return "an INT8 KV cache has no paged-context attention"
    if kv_cache == "fp8" and weights not in FP8_ATTENTION:
        return f"an FP8 KV cache has paged-context attention only with {', '.join(FP8_ATTENTION)} weights"
    return None


def runs_as_target(weights: str, kv_cache: str, sm: int) -> bool:
    """Whether a draft-target target can be built so."""
    problems = (weights_problem(weights, sm), cache_problem(kv_cache, sm), loses_reuse(weights, kv_cache))
    return not any(problems)


def target_cells(sm: int, *, mixture: bool = False) -> list[tuple[str, str]]:
    """Every (weights, kv_cache) a target can have on this GPU."""
    names = [name for name, form in FORMATS.items() if form.experts or not mixture]
    return [(w, kv) for w in names for kv in KV_ALGOS if runs_as_target(w, kv, sm)]


def cells_text(cells: list[tuple[str, str]]) -> str:
    """`none, fp8 (KV auto or fp8), int8_wo`."""
    by_weights: dict[str, list[str]] = {}
    for weights, kv_cache in cells:
        by_weights.setdefault(weights, []).append(kv_cache)
    shown = [w if kv == ["auto"] else f"{w} (KV {' or '.join(kv)})" for w, kv in by_weights.items()]
    return ", ".join(shown)
