"""What one request asks for, read completely before execute() returns, or refused in one line."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

import numpy as np
from wire import Array, Inputs, Parameters, Refused, text

# Ours -> the LLM models'. They go unchanged into every call of a request.
SAMPLING = {
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "length_penalty": "len_penalty",
    "temperature": "temperature",
    "repetition_penalty": "repetition_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
}
# These change what the target computes in a way that no draft call can follow: target-only requests may have them.
TARGET_ONLY = (
    "prompt_embedding_table",
    "prompt_vocab_size",
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "guided_decoding_guide_type",
    "guided_decoding_guide",
    "return_context_logits",
)
UNSUPPORTED = (
    "decoder_text_input",
    "image_input",
    "image_bytes_input",
    "image_url_input",
    "video_bytes_input",
    "prompt_table_extra_id",
)
# Ours -> preprocessing's.
TO_PREPROCESSING = {
    "text_input": "QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "bad_words": "BAD_WORDS_DICT",
    "stop_words": "STOP_WORDS_DICT",
    "end_id": "END_ID",
    "pad_id": "PAD_ID",
    "embedding_bias_words": "EMBEDDING_BIAS_WORDS",
    "embedding_bias_weights": "EMBEDDING_BIAS_WEIGHTS",
}


@dataclass(frozen=True)
class Settings:
    """Parameters of this model."""

    target: str
    draft: str
    default_draft_tokens: int
    default_draft_logits: bool
    max_draft_len: int
    acceptance_threshold: float | None
    exclude_input: bool
    skip_special_tokens: bool
    end_ids: tuple[int, ...]
    max_concurrent_requests: int
    llm_names: dict[str, str]
    """Our name of an input -> the LLM models', where their version names it otherwise."""
    llm_lacks: frozenset[str]
    """Outputs that the LLM models of this version do not have."""

    @classmethod
    def of(cls, given: Parameters) -> Settings:
        """Read them; a draft model without a name means that there is none."""
        pairs = [pair.split(":") for pair in given.text("llm_tensor_names").split(",") if pair]
        threshold = given.text("draft_acceptance_threshold")
        draft = given.text("tensorrt_llm_draft_model_name")
        return cls(
            target=given.text("tensorrt_llm_model_name", "tensorrt_llm"),
            draft=draft,
            default_draft_tokens=given.number("default_num_draft_tokens", 0),
            default_draft_logits=given.flag("default_use_draft_logits", False),
            max_draft_len=given.number("max_draft_len", 0),
            acceptance_threshold=float(threshold) if threshold else None,
            exclude_input=given.flag("exclude_input_in_output", True),
            skip_special_tokens=given.flag("skip_special_tokens", True),
            end_ids=given.ids("end_ids"),
            max_concurrent_requests=given.number("max_concurrent_requests", 16),
            llm_names={ours.strip(): theirs.strip() for ours, theirs in pairs},
            llm_lacks=frozenset(name.strip() for name in given.text("llm_lacks_outputs").split(",")),
        )


@dataclass(frozen=True)
class Job:
    """One request. `sampling` holds tensors by the LLM models' names, batch dimension included."""

    request_id: str
    inputs: Inputs
    wanted: frozenset[str]
    max_tokens: int
    min_tokens: int
    draft_tokens: int
    """Most draft tokens per round that the request (or the server's default) asks for."""
    draft_logits: bool
    stream: bool
    exclude_input: bool
    stop_texts: tuple[str, ...]
    task: str | None
    sampling: dict[str, Array]
    target_only: dict[str, Array]
    arrival_ns: int = field(default_factory=time.monotonic_ns)

    @classmethod
    def of(cls, request_id: str, wanted: frozenset[str], inputs: Inputs, settings: Settings) -> Job:
        """Check and read the inputs. Raises Refused."""
        _check(inputs)
        draft_tokens = inputs.integer("num_draft_tokens", settings.default_draft_tokens)
        if draft_tokens < 0:
            raise Refused(f"num_draft_tokens is {draft_tokens}; it must be 0 (no speculation) or more")
        target_only = [name for name in TARGET_ONLY if _given(inputs, name)]
        if target_only and draft_tokens and "num_draft_tokens" in inputs:
            raise Refused(f"{target_only[0]} does not go together with draft tokens; send num_draft_tokens 0")
        task = inputs.array("task")
        return cls(
            request_id=request_id or uuid.uuid4().hex,
            inputs=inputs,
            wanted=wanted,
            max_tokens=inputs.integer("max_tokens"),
            min_tokens=inputs.integer("min_tokens", 0),
            draft_tokens=0 if target_only else draft_tokens,
            draft_logits=inputs.flag("use_draft_logits", settings.default_draft_logits),
            stream=inputs.flag("stream"),
            exclude_input=inputs.flag("exclude_input_in_output", settings.exclude_input),
            stop_texts=tuple(inputs.words("stop_words")),
            task=None if task is None else text(task.reshape(-1)[0], "task"),
            sampling={theirs: _two_dims(inputs, ours) for ours, theirs in SAMPLING.items() if ours in inputs},
            target_only={name: _two_dims(inputs, name) for name in target_only},
        )


def _check(inputs: Inputs) -> None:
    for name in ("text_input", "max_tokens"):
        if name not in inputs:
            raise Refused(f"{name} is missing")
    size = len(inputs.array("text_input"))
    if size != 1 or inputs.array("text_input").size != 1:
        raise Refused(f"text_input holds {inputs.array('text_input').size} prompts; send one prompt per request")
    for name in ("beam_width", "num_return_sequences"):
        if (inputs.integer(name) or 1) != 1:
            raise Refused(f"{name} is {inputs.integer(name)}; this pipeline does 1")
    if inputs.integer("max_tokens") < 1:
        raise Refused(f"max_tokens is {inputs.integer('max_tokens')}; it must be at least 1")
    for name in UNSUPPORTED:
        if name in inputs:
            raise Refused(f"{name}: this pipeline takes text only")


def _given(inputs: Inputs, name: str) -> bool:
    return inputs.flag(name) if name.startswith("return_") else name in inputs


def _two_dims(inputs: Inputs, name: str) -> Array:
    """Scalars reach a Python model as [B] or [B, 1]; the LLM models expect [B, 1] from their clients."""
    array = inputs.array(name)
    return array.reshape(1, 1) if array.size == 1 else np.asarray(array)
