"""Outputs of the LLM API as Triton tensors, with the acceptance totals as numbers.

Totals come from the request's own metrics. Versions before pull request 17082 (July 2026) report zeros there although
the count of iterations is right; then they follow from the iterations, and `spec_source` says so: every iteration
emits one token of the target's own, so accepted = tokens - iterations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from asking import Ask
from wire import Array, strings

TIMES = ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time")
BLOCKS = {
    "kv_cache_reused_block": "num_reused_blocks",
    "kv_cache_missed_block": "num_missed_blocks",
    "kv_cache_alloc_new_blocks": "num_new_allocated_blocks",
    "kv_cache_alloc_total_blocks": "num_total_allocated_blocks",
}


class Answer:
    """The responses of one request. A stream carries new text only."""

    def __init__(self, ask: Ask, draft_len: int) -> None:
        self._ask = ask
        self._draft_len = draft_len
        self._sent: dict[int, int] = {}

    def tensors(self, result: Any, last: bool) -> dict[str, Array]:
        """Of one update; figures about the whole request come with the last."""
        outputs = list(result.outputs)
        found = {"text_output": strings(*(self._text(output) for output in outputs))}
        if not last:
            return found
        if self._ask.finish_reason:
            found["finish_reason"] = strings(*(str(output.finish_reason) for output in outputs))
        if self._ask.stop_reason:
            found["stop_reason"] = strings(*(str(output.stop_reason) for output in outputs))
        if self._ask.logprob:
            sums = [output.cumulative_logprob for output in outputs]
            found["cumulative_logprob"] = np.array([np.nan if s is None else s for s in sums], dtype=np.float32)
        if self._ask.perf:
            found |= self._perf(result, outputs)
        return found

    def _text(self, output: Any) -> str:
        text = str(output.text)
        if not self._ask.streaming:
            return text
        start = self._sent.get(output.index, 0)
        # A character whose bytes are not complete yet is shown as U+FFFD and replaced by the next update.
        end = len(text) if output.finish_reason is not None else len(text.rstrip("\ufffd"))
        self._sent[output.index] = max(start, end)
        return text[start : max(start, end)]

    def _perf(self, result: Any, outputs: list[Any]) -> dict[str, Array]:
        tokens = sum(len(output.token_ids) for output in outputs)
        found = {
            "num_input_tokens": _int32(len(result.prompt_token_ids)),
            "num_output_tokens": _int32(tokens),
        }
        metrics = [m for m in (getattr(output, "request_perf_metrics", None) for output in outputs) if m is not None]
        if metrics:
            found |= _cache(metrics[0]) | _times(metrics[0])
        return found | self._speculation(result, outputs, metrics, tokens)

    def _speculation(self, result: Any, outputs: list[Any], metrics: list[Any], tokens: int) -> dict[str, Array]:
        rounds = getattr(result, "decoding_iter", None) if len(outputs) == 1 else None
        speculative = [m.speculative_decoding for m in metrics if getattr(m, "speculative_decoding", None) is not None]
        accepted = sum(int(s.total_accepted_draft_tokens) for s in speculative)
        drafted = sum(int(s.total_draft_tokens) for s in speculative)
        source = "metrics"
        if not drafted and rounds and tokens > rounds:
            # An upper bound of what was drafted: a schedule or the end of an answer may have drafted less.
            accepted, drafted, source = tokens - rounds, rounds * self._draft_len, "iterations"
        found = {
            "acceptance_rate": np.array([accepted / drafted if drafted else 0.0], dtype=np.float32),
            "total_accepted_draft_tokens": _int32(accepted),
            "total_draft_tokens": _int32(drafted),
            "spec_source": strings(source if drafted else "none"),
        }
        return found | ({} if rounds is None else {"spec_rounds": _int32(int(rounds))})


def _cache(metrics: Any) -> dict[str, Array]:
    cache = getattr(metrics, "kv_cache_metrics", None)
    if cache is None:
        return {}
    found = {name: _int32(int(getattr(cache, field))) for name, field in BLOCKS.items() if hasattr(cache, field)}
    return found | {"kv_cache_hit_rate": np.array([cache.kv_cache_hit_rate], dtype=np.float32)}


def _times(metrics: Any) -> dict[str, Array]:
    timing = getattr(metrics, "timing_metrics", None)
    if timing is None:
        return {}
    return {f"{name}_ns": np.array([_nanoseconds(getattr(timing, name))], dtype=np.int64) for name in TIMES}


def _nanoseconds(time: Any) -> int:
    """A timedelta since the clock's start, as the C++ clock is bound; or seconds."""
    seconds = time.total_seconds() if hasattr(time, "total_seconds") else float(time)
    return round(seconds * 1e9)


def _int32(value: int) -> Array:
    return np.array([value], dtype=np.int32)
