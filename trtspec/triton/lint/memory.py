"""Rules on KV caches and attention windows, from parameters, engine records and the GPU that was planned for."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.analysis.memory import blocks
from trtspec.config import ROLES
from trtspec.triton.lint.engine import Engine
from trtspec.triton.lint.problem import Problem
from trtspec.triton.lint.seen import FOLDERS, Seen

FRACTION, TOKENS = "kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache"
HOST, WINDOW = "kv_cache_host_memory_bytes", "max_attention_window_size"
GIB = 1 << 30


def check_memory(seen: Seen) -> Iterator[Problem]:
    """Nothing for the reference engine, whose cache is not TensorRT-LLM's."""
    if not seen.tensorrt:
        return
    shared = _shared(seen)
    for _, name, engine in seen.pairs():
        yield from _fraction(seen, name, shared)
        if engine is not None:
            yield from _sequences(seen, name, engine)
    if shared:
        without = [FOLDERS[role] for role in ROLES[::-1] if seen.number(FOLDERS[role], TOKENS) is None]
        if without:
            yield Problem(without[0], f"both models use the same GPU, and {' and '.join(without)} has no {TOKENS}: "
                          "load order decides what each cache gets", "memory.order", "warning",
                          "set hardware.gpu, so that both are planned")  # fmt: skip
        yield from _sum(seen)
    host = {role: seen.number(FOLDERS[role], HOST) or 0 for role in ROLES}
    if host["draft"] and host["draft"] >= host["target"]:
        yield Problem(FOLDERS["draft"], f"{HOST} is as large as the target's: the draft's tokens take far fewer bytes",
                      "memory.draft-host", "warning", "set it for the draft by itself")  # fmt: skip


def _shared(seen: Seen) -> bool:
    """Both models on one GPU; without ids both begin on GPU 0."""
    target, draft = (set(seen.ids(FOLDERS[role], "gpu_device_ids")) for role in ROLES[::-1])
    return bool(target & draft) or not target or not draft


def _fraction(seen: Seen, name: str, shared: bool) -> Iterator[Problem]:
    fraction, bound = seen.fraction(name, FRACTION), seen.number(name, TOKENS) is not None
    if fraction is not None and not 0 < fraction <= 1:
        yield Problem(
            name, f"{FRACTION} is {fraction:g}: no KV cache", "memory.sequence", fix="a share above 0, at most 1"
        )
    elif not bound and (fraction is None or fraction > (0.9 if not shared else 0.5)):
        shown = "unset, and then 0.9" if fraction is None else f"{fraction:g}"
        where = "shared with another model" if shared else "which also holds activations and logits"
        yield Problem(name, f"{FRACTION} is {shown}, on a GPU {where}", "memory.slack", "warning",
                      f"lower it, or set {TOKENS}")  # fmt: skip


def _sequences(seen: Seen, name: str, engine: Engine) -> Iterator[Problem]:
    tokens, length, batch = seen.number(name, TOKENS), engine.number("max_seq_len"), engine.number("max_batch_size")
    if tokens is None or not length:
        return
    one = blocks(length, engine.tokens_per_block)
    if tokens < one:
        yield Problem(name, f"{TOKENS} {tokens} is less than one sequence of {length} tokens takes ({one}): the server "
                      "does not start", "memory.sequence", fix="shorten max_seq_len, or give more cache")  # fmt: skip
    elif tokens < batch * one:
        yield Problem(name, f"{TOKENS} {tokens:,} holds {tokens // one} sequences of {length:,} tokens, not {batch}: "
                      f"{batch} × {one:,} = {batch * one:,}", "memory.batch", "warning",
                      "fine where sequences are shorter; else lower engine.max_batch_size")  # fmt: skip


def _sum(seen: Seen) -> Iterator[Problem]:
    """Weights (rank files) and caches against the memory of one GPU that the plan names."""
    memory = ((seen.launch or {}).get("memory") or {}).get("bytes")
    tokens = {role: seen.number(FOLDERS[role], TOKENS) for role in ROLES}
    if not isinstance(memory, int) or len(seen.engines) < len(ROLES) or None in tokens.values():
        return
    weights = sum(engine.rank_bytes for engine in seen.engines.values())
    caches = sum((tokens[role] or 0) * seen.engines[role].kv_bytes for role in ROLES)
    if weights + caches > memory:
        yield Problem(
            "repository", f"weights of {weights / GIB:.1f} GiB and caches of {caches / GIB:.1f} GiB exceed a GPU of "
            f"{memory / GIB:.1f} GiB", "memory.sum", fix="run `trtspec plan`, then `trtspec repo`",
        )  # fmt: skip


def check_windows(seen: Seen) -> Iterator[Problem]:
    """Sliding windows of the engines' models."""
    if not seen.tensorrt:
        return
    for _, name, engine in seen.pairs():
        if engine is None or not engine.windows:
            continue
        length = engine.number("max_seq_len")
        wanted = [length if window is None else min(window, length) for window in engine.windows]
        shortest = min(wanted)
        if shortest >= length:
            continue
        given = seen.ids(name, WINDOW)
        if not given:
            yield Problem(name, f"layers have windows of {shortest} tokens, and {WINDOW} is not set", "windows.unset",
                          fix="run `trtspec repo`")  # fmt: skip
        elif any(size != given[i % len(given)] for i, size in enumerate(wanted)):
            yield Problem(name, f"{WINDOW} {','.join(map(str, given))} is not the pattern of the model's layers",
                          "windows.pattern", fix="run `trtspec repo`")  # fmt: skip
        yield Problem(name, f"sequences beyond {shortest} tokens reuse no cache block: each round computes them anew",
                      "windows.reuse", "warning", f"keep engine.max_seq_len at {shortest} or below")  # fmt: skip
