"""A stand-in for `tensorrt_llm`: no model, no GPU, and no claim about either. It repeats the prompt's words.

It has the calls that our model uses, with the shapes of their answers as TensorRT-LLM documents them. Copied beside
model.py as tensorrt_llm.py it also serves in a real Triton. Words of the prompt steer it: `slow` takes its time,
`breaks` raises, `zeros` reports metrics of zero as versions before July 2026 did.
"""

from __future__ import annotations

import asyncio
import datetime
import types
from collections.abc import AsyncIterator
from typing import Any

made: list[LLM] = []


class SamplingParams:
    """Refuses what it does not know, as the real one does."""

    known = ("n", "best_of", "top_k", "max_tokens", "min_tokens", "seed", "temperature", "top_p", "frequency_penalty",
             "presence_penalty", "repetition_penalty", "ignore_eos", "add_special_tokens", "exclude_input_from_output",
             "stop", "return_perf_metrics", "logprobs")  # fmt: skip

    def __init__(self, **given: Any) -> None:
        unknown = [name for name in given if name not in self.known]
        if unknown:
            raise TypeError(f"unexpected {unknown[0]}")
        if given.get("n", 1) > 1 and not given.get("temperature"):
            raise ValueError("Greedy decoding allows n=1 only.\nmore lines")
        self.given = given


class LLM:
    """Takes any keyword arguments."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.asked: list[SamplingParams] = []
        self.closed = False
        made.append(self)

    def generate_async(self, prompt: str, sampling: SamplingParams, streaming: bool = False) -> Result:
        asyncio.get_running_loop()  # only from within one, as our model promises
        if "breaks" in prompt:
            raise RuntimeError("CUDA out of memory\nTraceback of something")
        self.asked.append(sampling)
        return Result(prompt, sampling.given, streaming)

    def shutdown(self) -> None:
        self.closed = True


class Result:
    """One request. Each round emits up to three words; the text grows."""

    def __init__(self, prompt: str, given: dict[str, Any], streaming: bool) -> None:
        self.prompt_token_ids = prompt.split()
        words = prompt.split()[: given.get("max_tokens", 1000)]
        rounds = [words[i : i + 3] for i in range(0, len(words), 3)]
        self.decoding_iter = 0
        self.finished = False
        self.outputs = [_output(i) for i in range(given.get("n", 1))]
        self._rounds, self._given, self._streaming = rounds, given, streaming
        self._pause = 0.02 if "slow" in prompt else 0.0
        self._zeros = "zeros" in prompt
        self._aborted = False

    def abort(self) -> None:
        self._aborted = True

    async def __aiter__(self) -> AsyncIterator[Result]:
        for words in self._rounds:
            await asyncio.sleep(self._pause)
            if self._aborted:
                break
            self.decoding_iter += 1
            for output in self.outputs:
                output.token_ids += words
                output.text = " ".join(output.token_ids)
            if self._streaming and words is not self._rounds[-1]:
                yield self
        self.finished = True
        for output in self.outputs:
            output.finish_reason = "cancelled" if self._aborted else "stop"
            if self._given.get("logprobs"):
                output.cumulative_logprob = -1.5
            if self._given.get("return_perf_metrics"):
                output.request_perf_metrics = self._metrics(len(output.token_ids))
        yield self

    def _metrics(self, tokens: int) -> Any:
        accepted = 0 if self._zeros else tokens - self.decoding_iter
        drafted = 0 if self._zeros else 4 * self.decoding_iter
        start = datetime.timedelta(seconds=5)
        return types.SimpleNamespace(
            speculative_decoding=types.SimpleNamespace(
                acceptance_rate=0.0, total_accepted_draft_tokens=accepted, total_draft_tokens=drafted
            ),
            kv_cache_metrics=types.SimpleNamespace(
                num_reused_blocks=1, num_missed_blocks=2, num_new_allocated_blocks=3, num_total_allocated_blocks=4,
                kv_cache_hit_rate=0.25,
            ),
            timing_metrics=types.SimpleNamespace(
                arrival_time=start, first_scheduled_time=start, first_token_time=start, last_token_time=start * 2
            ),
        )  # fmt: skip


def _output(index: int) -> Any:
    return types.SimpleNamespace(
        index=index, text="", token_ids=[], finish_reason=None, stop_reason=None, cumulative_logprob=None
    )
