"""The output tensors of a request, gathered from the target's answers and our own counters."""

from __future__ import annotations

import numpy as np
from job import Job
from pair import Verdict
from rounds import Rounds
from wire import Array, strings

_SUMMED = ("kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks")
_EARLIEST = ("first_scheduled_time_ns", "first_token_time_ns")


class Result:
    """What a request's responses hold. Only the last response of a stream holds more than text and counts."""

    def __init__(self, job: Job, prompt_tokens: int) -> None:
        self._job = job
        self._prompt_tokens = prompt_tokens
        self._log_probs: list[Array] = []
        self._logits: list[Array] = []
        self._context_logits: Array | None = None
        self._sums = dict.fromkeys(_SUMMED, 0)
        self._times = {"arrival_time_ns": job.arrival_ns, **dict.fromkeys((*_EARLIEST, "last_token_time_ns"), 0)}

    def add(self, verdict: Verdict) -> None:
        """Take what a target call returned beside its tokens."""
        extras = verdict.extras
        if "output_log_probs" in extras:
            self._log_probs.append(extras["output_log_probs"].reshape(-1))
        if "generation_logits" in extras:
            self._logits.append(extras["generation_logits"].reshape(-1, extras["generation_logits"].shape[-1]))
        self._context_logits = extras.get("context_logits", self._context_logits)
        for name in _SUMMED:
            self._sums[name] += int(extras[name].flat[0]) if name in extras else 0
        for name in _EARLIEST:
            self._times[name] = self._times[name] or (int(extras[name].flat[0]) if name in extras else 0)
        if "last_token_time_ns" in extras:
            self._times["last_token_time_ns"] = int(extras["last_token_time_ns"].flat[0])

    def piece(self, text: str, tokens: int) -> dict[str, Array]:
        """A part of a stream; `tokens` is how many this part completes."""
        out = {"text_output": strings(text)}
        if self._job.inputs.flag("return_num_input_tokens"):
            out["num_input_tokens"] = _int32(self._prompt_tokens)
        if self._job.inputs.flag("return_num_output_tokens"):
            out["num_output_tokens"] = _int32(tokens)
        return self._asked_for(out)

    def last(self, text: str, tokens: int, total: int, rounds: Rounds, mode: str, finish: str) -> dict[str, Array]:
        """The last or only response; `total` is the number of tokens of the whole answer."""
        out = self.piece(text, tokens) | {
            "spec_rounds": _int32(rounds.total),
            "spec_tested": _int32(rounds.tested),
            "spec_histogram": rounds.histogram[None],
            "spec_mode": strings(mode).reshape(1, 1),
            "finish_reason": strings(finish).reshape(1, 1),
        }
        if self._log_probs:
            log_probs = np.concatenate(self._log_probs)[:total].astype(np.float32)
            out["output_log_probs"] = log_probs.reshape(1, 1, -1)
            out["cum_log_probs"] = log_probs.sum(dtype=np.float32).reshape(1, 1)
        if self._logits:
            logits = np.concatenate(self._logits)[:total]
            out["generation_logits"] = logits.reshape(1, 1, *logits.shape)
        if self._context_logits is not None:
            out["context_logits"] = self._context_logits
        if self._job.inputs.flag("return_perf_metrics"):
            out |= self._perf(rounds)
        return self._asked_for(out)

    def _perf(self, rounds: Rounds) -> dict[str, Array]:
        return {
            **{name: _int32(value) for name, value in self._sums.items()},
            **{name: np.array([[value]], dtype=np.int64) for name, value in self._times.items()},
            "acceptance_rate": np.array([[rounds.rate]], dtype=np.float32),
            "total_accepted_draft_tokens": _int32(rounds.accepted),
            "total_draft_tokens": _int32(rounds.drafted),
        }

    def _asked_for(self, tensors: dict[str, Array]) -> dict[str, Array]:
        wanted = self._job.wanted
        return {name: array for name, array in tensors.items() if not wanted or name in wanted}


def _int32(value: int) -> Array:
    return np.array([[value]], dtype=np.int32)
