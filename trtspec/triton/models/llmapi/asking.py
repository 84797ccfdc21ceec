"""A Triton request as the LLM API wants it: one prompt, keyword arguments of SamplingParams, what to answer.

Tensor names are those of TensorRT-LLM's own llmapi model. `sampling_param_X` becomes X; ours are marked in the table
of the repository writer. Everything is read before anything runs, so that a refused request costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wire import Inputs, Refused

PREFIX = "sampling_param_"
INTEGERS = ("n", "best_of", "top_k", "max_tokens", "min_tokens", "seed")
REALS = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "repetition_penalty")
FLAGS = ("ignore_eos", "add_special_tokens", "exclude_input_from_output")


@dataclass(frozen=True)
class Ask:
    """One request. `sampling` are arguments of SamplingParams."""

    prompt: str
    sampling: dict[str, Any]
    streaming: bool
    perf: bool
    finish_reason: bool
    stop_reason: bool
    logprob: bool


def parse(inputs: Inputs) -> Ask:
    """Refused with one line for what cannot be served."""
    prompts = inputs.words("text_input")
    if len(prompts) != 1:
        raise Refused(f"text_input holds {len(prompts)} prompts; send one")
    ask = Ask(
        prompt=prompts[0],
        sampling=_sampling(inputs),
        streaming=inputs.flag("streaming"),
        perf=inputs.flag(f"{PREFIX}return_perf_metrics"),
        finish_reason=inputs.flag("return_finish_reason"),
        stop_reason=inputs.flag("return_stop_reason"),
        logprob=inputs.flag("return_cumulative_logprob"),
    )
    if ask.perf:
        ask.sampling["return_perf_metrics"] = True
    if ask.logprob:
        # The sum exists only where log probabilities are computed.
        ask.sampling["logprobs"] = 1
    return ask


def _sampling(inputs: Inputs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for names, read in ((INTEGERS, inputs.integer), (REALS, inputs.real), (FLAGS, inputs.flag)):
        found |= {name: read(PREFIX + name) for name in names if PREFIX + name in inputs}
    stop = inputs.words(f"{PREFIX}stop")
    if stop:
        found["stop"] = stop
    _check(found)
    return found


def _check(sampling: dict[str, Any]) -> None:
    """What older versions pass on to the GPU unchecked."""
    for name, least in (("n", 1), ("max_tokens", 1), ("top_k", 0), ("min_tokens", 0), ("temperature", 0)):
        if sampling.get(name, least) < least:
            raise Refused(f"{PREFIX}{name} is {sampling[name]}; at least {least}")
    if not 0 <= sampling.get("top_p", 1) <= 1:
        raise Refused(f"{PREFIX}top_p is {sampling['top_p']}; between 0 and 1")
    if sampling.get("best_of", sampling.get("n", 1)) < sampling.get("n", 1):
        raise Refused(f"{PREFIX}best_of is below {PREFIX}n")
