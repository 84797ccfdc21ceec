"""Do both models and their KV caches fit on the GPUs, whichever loads first?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trtspec.analysis.memory import DEFAULT_FRACTION
from trtspec.config import ROLES, Role, RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.fitting import alternatives
from trtspec.pairing.model import Model
from trtspec.pairing.placement import Facts, MachineUse, MemoryPlan, plan_machine, plan_memory

ORDERS: tuple[tuple[Role, Role], ...] = (("target", "draft"), ("draft", "target"))
_GIB = 1 << 30


def gib(nbytes: float) -> str:
    """12.3 GiB or 45.6 MiB; three digits."""
    if nbytes < _GIB / 10:
        return f"{nbytes / (1 << 20):.3g} MiB"
    return f"{nbytes / _GIB:.3g} GiB" if nbytes < 1000 * _GIB else f"{nbytes / _GIB:,.0f} GiB"


def check_memory(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """The plan's verdict: does not fit, fits for fewer sequences, fits; and what load order would do by default."""
    if target.facts is None or draft.facts is None:
        yield Finding("memory.not-measured", "info", "pair", "memory is not planned: a config.json is missing")
        return
    facts: Facts = {"target": target.facts, "draft": draft.facts}
    if config.engine.backend == "reference":
        yield _machine(facts, config)
        return
    plan = plan_memory(facts, config)
    if plan is None:
        yield Finding(
            "memory.not-measured", "info", "pair", "memory is not planned: hardware.gpu names no GPU",
            "set hardware.gpu and hardware.count",
        )  # fmt: skip
        return
    yield _verdict(plan, facts, config)
    if plan.loads_at_all and plan.placement == "shared":
        yield _load_order(plan)


def _machine(facts: Facts, config: RunConfig) -> Finding:
    use = plan_machine(facts, config)
    data = machine_document(use)
    parts = f"weights {gib(sum(use.weights.values()))} and key-value caches of up to {gib(sum(use.caches.values()))}"
    if use.memory is not None and use.total > use.memory:
        return Finding(
            "memory.too-large", "error", "pair", f"{parts} exceed the {gib(use.memory)} of hardware.memory_gib",
            "lower engine.max_batch_size or engine.max_seq_len", data,
        )  # fmt: skip
    return Finding("memory.fits", "info", "pair", f"the reference engines take {parts}", None, data,
                   brief=f"{gib(use.total)} for both engines")  # fmt: skip


def _verdict(plan: MemoryPlan, facts: Facts, config: RunConfig) -> Finding:
    data, length = document(plan), config.engine.max_seq_len
    bound = "; windowed layers need less, so more may fit" if plan.windowed else ""
    if not plan.loads_at_all:
        lack = f"weights and buffers alone exceed it by {gib(plan.short)}" if plan.short else _room(plan)
        return Finding(
            "memory.too-large", "error", "pair",
            f"does not fit {gib(plan.memory)} of {config.hardware.spec.title}: {lack} ({_gpu_line(plan)})",
            _would_fit(facts, config), data,
        )  # fmt: skip
    fits = f"{plan.largest_batch:,} sequences of {length:,} tokens fit at once"
    if not plan.fits:
        shorter = f"engine.max_seq_len {plan.largest_length:,}" if plan.largest_length > 1 else None
        choices = [f"engine.max_batch_size {plan.largest_batch}", *([shorter] if shorter else [])]
        return Finding(
            "memory.tight", "warning", "pair",
            f"{fits}, not {plan.batch} (engine.max_batch_size): the others wait for cache ({_gpu_line(plan)}{bound})",
            f"set {' or '.join(choices)}" + _also(_would_fit(facts, config)), data,
        )  # fmt: skip
    message = f"{fits} ({_gpu_line(plan)}{bound})"
    return Finding("memory.fits", "info", "pair", message, None, data, brief=f"{fits}, estimated")


def _room(plan: MemoryPlan) -> str:
    return f"the caches hold {plan.tokens:,} tokens, one sequence needs {max(plan.lengths.values()):,}"


def _gpu_line(plan: MemoryPlan) -> str:
    gpu = min(zip(plan.splits, plan.gpus, strict=True), key=lambda both: both[0].tokens)[1]
    weights = " + ".join(gib(use.weights) for use in gpu.uses.values())
    other = sum(use.fixed - use.weights for use in gpu.uses.values())
    caches = sum(plan.tokens * use.kv_per_token for use in gpu.uses.values())
    return (
        f"GPU {gpu.index}, estimated: weights {weights}, buffers {gib(other)}, "
        f"caches {gib(caches)} for {plan.tokens:,} tokens"
    )


def _would_fit(facts: Facts, config: RunConfig) -> str:
    found = alternatives(facts, config)
    return "what fits: " + "; ".join(found) if found else "choose smaller models, or more or larger GPUs"


def _also(text: str) -> str:
    return f"; {text}" if text.startswith("what fits") else ""


def _load_order(plan: MemoryPlan) -> Finding:
    """What TensorRT-LLM's default fraction would do in either order, and what to write instead."""
    default: dict[Role, tuple[float, int | None]] = dict.fromkeys(ROLES, (DEFAULT_FRACTION, None))
    said = [f"{second} loading second {_second(plan, (first, second), default)}" for first, second in ORDERS]
    write = " ".join(f"{r} {plan.settings[r][0]:g}" for r in ROLES)
    return Finding(
        "memory.load-order", "info", "pair",
        f"with the default fraction {DEFAULT_FRACTION} on both, load order decides: {'; '.join(said)}",
        f"kv_cache_free_gpu_mem_fraction {write}, max_tokens_in_paged_kv_cache {plan.tokens} on both: "
        "the same caches in either order",
        {"default": orders(plan, default), "settings": orders(plan, dict(plan.settings))},
        brief="the default fractions would starve the model that loads second",
    )  # fmt: skip


def _second(plan: MemoryPlan, order: tuple[Role, Role], settings: Mapping[Role, tuple[float, int | None]]) -> str:
    pool = plan.pools(order, settings)[order[1]]
    if pool.free < 0:
        return f"lacks {gib(-pool.free)} for its weights"
    return f"gets {pool.tokens:,} of {plan.needed:,} tokens"


def orders(plan: MemoryPlan, settings: Mapping[Role, tuple[float, int | None]]) -> dict[str, Any]:
    """Tokens of each cache, and bytes found free, in both load orders."""
    found = {}
    for order in ORDERS:
        pools = plan.pools(order, settings)
        found[f"{order[0]} first"] = {r: {"tokens": pools[r].tokens, "free": pools[r].free} for r in ROLES}
    return found


def machine_document(use: MachineUse) -> dict[str, Any]:
    """The reference engines' memory as plain data, bytes; `memory` is null where the machine's is not given."""
    return {"weights": dict(use.weights), "caches": dict(use.caches), "memory": use.memory, "total": use.total}


def document(plan: MemoryPlan) -> dict[str, Any]:
    """The plan as plain data: bytes and tokens. Everything but weights and cache is an estimate."""
    return {
        "placement": plan.placement,
        "gpu_memory": plan.memory,
        "gpus": [_gpu_document(plan, index) for index in range(len(plan.gpus))],
        "cache_tokens": plan.tokens,
        "needed_tokens": plan.needed,
        "largest_batch": plan.largest_batch,
        "largest_seq_len": plan.largest_length,
        "upper_bound": plan.windowed,
        "fits": plan.fits,
        "kv_cache": {
            role: {"kv_cache_free_gpu_mem_fraction": fraction, "max_tokens_in_paged_kv_cache": tokens}
            for role, (fraction, tokens) in plan.settings.items()
        },
    }


def _gpu_document(plan: MemoryPlan, index: int) -> dict[str, Any]:
    gpu = plan.gpus[index]
    taken = sum(use.fixed + plan.tokens * use.kv_per_token for use in gpu.uses.values())
    roles: dict[str, Any] = {
        role: {
            "weights": use.weights,
            "activations": use.activations,
            "logits": use.logits,
            "context": use.context,
            "kv_bytes_per_token": use.kv_per_token,
            "kv_cache": plan.tokens * use.kv_per_token,
        }
        for role, use in gpu.uses.items()
    }
    return {"index": gpu.index, "free": plan.memory - taken, **roles}
