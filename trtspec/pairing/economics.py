"""Will it pay? Cost of a draft step, and the speed-up over draft lengths and acceptance.

At small batch a decode step takes as long as reading its weights, so c = bytes the draft reads per step ÷ bytes the
target reads per step, each on one GPU of its tensor-parallel group. It is an estimate: launch overhead makes a small
draft dearer. Activations and KV cache are left out; verifying is taken as one step (v = 1) without overhead (o = 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trtspec.analysis.speedup import best_k, break_even_alpha, speedup_table
from trtspec.config import RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model
from trtspec.pairing.size import parameters

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
WEIGHT_BYTES = {
    "fp8": 1.0,
    "int8_sq": 1.0,
    "int8_wo": 1.0,
    "int4_wo": 0.5,
    "int4_awq": 0.5 + 2 / 128,
    "w4a8_awq": 0.5 + 2 / 128,
    "nvfp4": 0.5 + 1 / 16,
}
"""Bytes per weight, scales of its block included. Head and embedding stay in the model's own type."""
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Cost:
    """c = draft step ÷ target step, and where it comes from."""

    ratio: float
    source: str


def cost_ratio(target: Model, draft: Model, config: RunConfig) -> Cost | None:
    """Measured if the configuration gives it, else estimated from bytes; None when a size is unknown."""
    if config.checks.cost_ratio is not None:
        return Cost(config.checks.cost_ratio, "given as checks.cost_ratio")
    read = [bytes_per_step(model, config) for model in (target, draft)]
    if read[0] is None or read[1] is None:
        return None
    return Cost(read[1] / read[0], "estimated from the weight bytes each step reads")


def bytes_per_step(model: Model, config: RunConfig) -> float | None:
    """Weight bytes one GPU reads for one decode step: everything but the rows of an untied input embedding."""
    count = parameters(model)
    if count is None or model.facts is None:
        return None
    source = config.pair[model.role]
    table = model.facts.vocab_size * model.facts.hidden_size
    # Never negative: a config.json that lies about its size is another finding's business.
    inner = max(0, count - table * (1 if model.facts.tie_word_embeddings else 2))
    plain = DTYPE_BYTES[_dtype(model, config)]
    return (inner * WEIGHT_BYTES.get(source.quantization.weights, plain) + table * plain) / source.parallelism.tensor


def _dtype(model: Model, config: RunConfig) -> str:
    if config.engine.backend == "reference":
        return "float32" if config.engine.compute_dtype == "float32" else "bfloat16"
    given = config.pair[model.role].dtype
    if given != "auto":
        return given
    return (model.facts.dtype if model.facts else None) or "bfloat16"


def check_economics(cost: Cost | None, config: RunConfig) -> Iterator[Finding]:
    """Expected speed-up; a draft that cannot pay is a warning."""
    if cost is None:
        yield Finding("economics.not-measured", "info", "pair", "cost of a draft step is unknown: a size is not known")
        return
    facts = table(cost, config)
    k = config.speculation.k
    at_k = facts["break_even"][k - 1]
    if k * cost.ratio >= 1:
        yield Finding(
            "economics.draft-too-slow", "warning", "pair",
            f"K={k} drafts take {k * cost.ratio:.2f} target steps (c = {cost.ratio:.3f}, {cost.source})",
            "choose a smaller or better quantized draft, or a smaller draft_len", facts,
        )  # fmt: skip
    alpha = config.checks.acceptance
    if alpha is not None and (at_k is None or alpha < at_k):
        yield Finding(
            "economics.no-gain", "warning", "pair",
            f"at α = {alpha:.2f}, K={k} is slower than no speculation: break-even is {_percent(at_k)}",
            _smaller(facts["best"][0]), facts,
        )  # fmt: skip
    yield Finding("economics.expected", "info", "pair", _summary(cost, facts, k, at_k), None, facts)


def _smaller(best: dict[str, Any]) -> str:
    return f"set speculation.draft_len to {best['k']}" if best["k"] else "serve this pair without speculation"


def _percent(alpha: float | None) -> str:
    return "never reached" if alpha is None else f"α = {alpha:.2f}"


def _summary(cost: Cost, facts: dict[str, Any], k: int, at_k: float | None) -> str:
    low, high = facts["speedup"][0][k - 1], facts["speedup"][-1][k - 1]
    alphas = facts["alphas"]
    span = (
        f"α {alphas[0]:g}: {low:.2f}×" if len(alphas) == 1 else f"α {alphas[0]:g}-{alphas[-1]:g}: {low:.2f}-{high:.2f}×"
    )
    return f"K={k} at {span}; break-even {_percent(at_k)} (c = {cost.ratio:.3f}, {cost.source}; v = 1, o = 0)"


def table(cost: Cost, config: RunConfig) -> dict[str, Any]:
    """Speed-up for each α (rows) and each K = 1..max_draft_len (columns), best K per α, break-even α per K."""
    given = config.checks.acceptance
    alphas = ALPHAS if given is None else (given,)
    ks = list(range(1, config.speculation.max_draft_len + 1))
    best = [best_k(alpha, cost.ratio, ks[-1]) for alpha in alphas]
    return {
        "cost_ratio": cost.ratio,
        "cost_source": cost.source,
        "verify_cost": 1.0,
        "overhead": 0.0,
        "alpha_source": "range" if given is None else "given as checks.acceptance",
        "alphas": list(alphas),
        "ks": ks,
        "k": config.speculation.k,
        "speedup": speedup_table(alphas, ks, cost.ratio),
        "best": [{"alpha": a, "k": k, "speedup": gain} for a, (k, gain) in zip(alphas, best, strict=True)],
        "break_even": [break_even_alpha(k, cost.ratio) for k in ks],
    }
