"""The output tensors of a request, gathered from the target's answers and our own counters."""

from __future__ import annotations

import time

import numpy as np
from job import Job
from pair import Verdict
from rounds import Rounds
from wire import Array, Refused, int32, strings

_SUMMED = ("kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks")
_EARLIEST = ("first_scheduled_time_ns", "first_token_time_ns")
_LAST = "last_token_time_ns"
_SCORES = ("cum_log_probs", "output_log_probs", "context_logits", "generation_logits")


class Result:
    """What a request's responses hold. Only the last response of a stream holds more than text and counts."""

    def __init__(self, job: Job, prompt_tokens: int) -> None:
        self._job = job
        self._prompt_tokens = prompt_tokens
        self._log_probs: list[Array] = []
        self._logits: list[Array] = []
        self._context_logits: Array | None = None
        self._sums = dict.fromkeys(_SUMMED, 0)
        self._times = {"arrival_time_ns": job.arrival_ns, **dict.fromkeys((*_EARLIEST, _LAST), 0)}

    def add(self, verdict: Verdict) -> None:
        """Take what a target call returned beside its tokens."""
        extras = verdict.extras
        if "output_log_probs" in extras:
            self._log_probs.append(_rows(extras["output_log_probs"].reshape(-1), verdict.own, "log probs"))
        if "generation_logits" in extras:
            logits = extras["generation_logits"]
            # An answer without tokens has logits without width.
            rows = logits.reshape(-1, logits.shape[-1] or 1)
            self._logits.append(_rows(rows, verdict.own, "rows of logits"))
        self._context_logits = extras.get("context_logits", self._context_logits)
        self._take_figures(extras)

    def piece(self, text: str, tokens: int) -> dict[str, Array]:
        """A part of a stream; `tokens` is how many this part completes."""
        return self._asked_for(self._counted([text], tokens))

    def _counted(self, texts: list[str], tokens: int) -> dict[str, Array]:
        out = {"text_output": strings(*texts), **{name: _int32(i) for name, i in self._job.places.items()}}
        if self._job.inputs.flag("return_num_input_tokens"):
            out["num_input_tokens"] = _int32(self._prompt_tokens)
        if self._job.inputs.flag("return_num_output_tokens"):
            out["num_output_tokens"] = _int32(tokens)
        return out

    def last(self, text: str, tokens: int, total: int, rounds: Rounds, mode: str, finish: str) -> dict[str, Array]:
        """The last or only response; `total` is the number of tokens of the whole answer."""
        out = self._counted([text], tokens) | self._accounts(rounds, mode, finish)
        if self._log_probs:
            log_probs = np.concatenate(self._log_probs)[:total].astype(np.float32)
            out["output_log_probs"] = log_probs.reshape(1, 1, -1)
            out["cum_log_probs"] = log_probs.sum(dtype=np.float32).reshape(1, 1)
        if self._logits:
            logits = np.concatenate([rows for rows in self._logits if len(rows)] or self._logits[:1])[:total]
            out["generation_logits"] = logits.reshape(1, 1, *logits.shape)
        if self._context_logits is not None:
            out["context_logits"] = self._context_logits
        return self._asked_for(out)

    def beams(
        self, texts: list[str], tokens: int, found: dict[str, Array], rounds: Rounds, mode: str
    ) -> dict[str, Array]:
        """The only response of a beam search: the texts of all beams, and the target's figures as they came."""
        self._take_figures(found)
        scores = {name: array for name, array in found.items() if name in _SCORES}
        return self._asked_for(self._counted(texts, tokens) | self._accounts(rounds, mode, "length") | scores)

    def _take_figures(self, extras: dict[str, Array]) -> None:
        for name in _SUMMED:
            self._sums[name] += int(extras[name].flat[0]) if name in extras else 0
        # Versions whose models keep no time: the moment when their answer was here.
        now = time.monotonic_ns()
        for name in _EARLIEST:
            self._times[name] = self._times[name] or (int(extras[name].flat[0]) if name in extras else now)
        self._times[_LAST] = int(extras[_LAST].flat[0]) if _LAST in extras else now

    def _accounts(self, rounds: Rounds, mode: str, finish: str) -> dict[str, Array]:
        return {
            "spec_rounds": _int32(rounds.total),
            "spec_tested": _int32(rounds.tested),
            "spec_histogram": rounds.histogram[None],
            "spec_mode": strings(mode).reshape(1, 1),
            "finish_reason": strings(finish).reshape(1, 1),
            **(self._perf(rounds) if self._job.inputs.flag("return_perf_metrics") else {}),
        }

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
    return int32([[value]])


def _rows(array: Array, tokens: int, what: str) -> Array:
    """Those of a call's tokens. TensorRT-LLM returns a row for each draft token, accepted or not."""
    if len(array) < tokens:
        raise Refused(f"the target gave {len(array)} {what} for {tokens} tokens; send num_draft_tokens 0")
    return array[:tokens]
