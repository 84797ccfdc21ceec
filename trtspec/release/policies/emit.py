"""A study in the words of three servers: our policy file, the LLM API's schedule, vLLM's table.

Ours: docs/serving.md. The LLM API: `engine.pytorch.draft_len_schedule`, which always means *from this many requests
on*; `build` writes what each version reads. vLLM: `num_speculative_tokens_per_batch_size`, a list of [first, last, K]
(docs/features/speculative_decoding/dynamic_speculative_decoding.md of vLLM 0.25).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from trtspec.errors import EvidenceError
from trtspec.release.policies.prediction import ALL
from trtspec.release.policies.study import Choice, Study, gain

LAST = 4096
"""End of vLLM's last range: it takes what it serves at most from there."""


def serving(study: Study, *, predicted: bool = False) -> dict[str, Any]:
    """policy.json of the pipeline. A domain whose best K is the default's has no entry of its own."""
    steps = _steps(study, predicted)
    first, default = steps[0]
    tasks: dict[str, dict[str, Any]] = {}
    for domain in study.domains:
        own = next((c for c in study.at(domain) if c.concurrency == first), None)
        k = None if own is None else _k(own, predicted)
        if own is not None and k is not None and k != default:
            tasks[domain] = {"draft_len": k, "reason": why(own, k)}
    longest = max([default, *(entry["draft_len"] for entry in tasks.values())])
    overall = {c.concurrency: c for c in study.at(ALL)}
    reasons = [f"{load} in flight: K={k}, {why(overall[load], k)}" for load, k in steps]
    return {
        "version": 1,
        "default": {"draft_len": default, "reason": "; ".join(reasons)},
        "tasks": tasks,
        "by_concurrency": [[load, k] for load, k in _changes(longest, steps[1:])],
    }


def llmapi(study: Study, *, predicted: bool = False) -> dict[str, Any]:
    """Keys of the configuration: the draft length that is served, and the schedule that begins with it."""
    steps = _steps(study, predicted)
    longest = steps[0][1]
    if longest == 0:
        raise EvidenceError(
            "no K pays at the smallest load, and the LLM API always drafts", fix="serve the target alone"
        )
    schedule = {1: longest} | {load: min(k, longest) for load, k in _changes(longest, steps[1:])}
    found: dict[str, Any] = {"speculation": {"draft_len": longest}}
    if len(schedule) > 1:
        found["engine"] = {"pytorch": {"draft_len_schedule": schedule}}
    return found


def vllm(study: Study, *, predicted: bool = False) -> dict[str, Any]:
    """Keys of --speculative-config."""
    steps = _steps(study, predicted)
    longest = max(k for _, k in steps)
    if longest == 0:
        raise EvidenceError("no K pays at any load", fix="serve the target alone")
    starts = [(1, steps[0][1]), *_changes(steps[0][1], steps[1:])]
    ends = [load - 1 for load, _ in starts[1:]] + [max(LAST, starts[-1][0])]
    table = [[load, end, k] for (load, k), end in zip(starts, ends, strict=True)]
    return {"num_speculative_tokens": longest} | ({"num_speculative_tokens_per_batch_size": table} if table[1:] else {})


def notes(study: Study, formats: Sequence[str]) -> list[str]:
    """What a reader of the files has to know."""
    found = [f"Loads measured: {', '.join(map(str, study.concurrencies))} in flight; a K holds until the next one."]
    if "llmapi" in formats and study.domains:
        found.append("LLM API: K by load, of all domains together; it knows no tasks.")
    if {"llmapi", "vllm"} & {*formats} and any(k == 0 for k in (c.k for c in study.at(ALL))):
        found.append(
            "A 0 in a schedule: TensorRT-LLM pull request 16888 and vLLM issue 49548 (open in 2026) report that "
            "speculation comes back worse from it, or throughput collapses. Try it before you rely on it."
        )
    if "vllm" in formats:
        found.append("vLLM: its documentation says the table was tested with EAGLE and DFlash drafts only.")
    return found


def why(choice: Choice, k: int) -> str:
    """In a few words; a prediction says that it is one."""
    if k == choice.k:
        return choice.reason
    option = choice.option(k)
    if option is None or option.predicted is None:
        return "predicted to gain with no K; not measured"
    return f"×{gain(option.predicted.speedup)} predicted, not measured"


def _steps(study: Study, predicted: bool) -> list[tuple[int, int]]:
    """(load, K) of all domains together, where there is a K."""
    found = [(c.concurrency, k) for c in study.at(ALL) if (k := _k(c, predicted)) is not None]
    if not found:
        raise EvidenceError("no speed-up was measured", fix="measure both modes; --predicted takes predictions")
    return found


def _k(choice: Choice, predicted: bool) -> int | None:
    """A prediction counts only where it was asked for."""
    return choice.proposed if predicted and choice.proposed is not None else choice.k


def _changes(before: int, steps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Steps that differ from the one before."""
    lengths = [before, *(k for _, k in steps)]
    return [step for step, (old, new) in zip(steps, itertools.pairwise(lengths), strict=True) if old != new]
