"""What one request asks for, read completely before execute() returns, or refused in one line."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace

import numpy as np
from wire import Array, Inputs, Parameters, Refused, text

# Ours -> the LLM models'. They go unchanged into every call of a request, but for the seed (see asking.py).
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
NEUTRAL = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""Penalties, and where they do nothing."""
UNSUPPORTED = (
    "decoder_text_input",
    "image_input",
    "image_bytes_input",
    "image_url_input",
    "video_bytes_input",
    "prompt_table_extra_id",
)


@dataclass(frozen=True)
class Settings:
    """Parameters of this model."""

    target: str
    draft: str
    default_draft_tokens: int
    default_draft_logits: bool
    max_draft_len: int
    acceptance_threshold: float | None
    fast_logits: bool
    """The draft's logits are a handle that only the target can read."""
    vocabularies: tuple[int | None, int | None]
    """Sizes of the draft's and the target's, where known."""
    logits_width: int | None
    """Of the target's logits, which may be padded."""
    adaptive_draft_len: bool
    decoupled: bool
    """Whether an answer may come in several responses."""
    exclude_input: bool
    include_stop_words: bool
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
        draft = given.text("tensorrt_llm_draft_model_name")
        return cls(
            target=given.text("tensorrt_llm_model_name", "tensorrt_llm"),
            draft=draft,
            default_draft_tokens=given.number("default_num_draft_tokens", 0),
            default_draft_logits=given.flag("default_use_draft_logits", False),
            max_draft_len=given.number("max_draft_len", 0),
            acceptance_threshold=given.real("draft_acceptance_threshold"),
            fast_logits=given.flag("speculative_decoding_fast_logits", False),
            vocabularies=(given.number("draft_vocab_size", 0) or None, given.number("target_vocab_size", 0) or None),
            logits_width=given.number("target_logits_width", 0) or None,
            adaptive_draft_len=given.flag("adaptive_draft_len", False),
            decoupled=given.decoupled,
            exclude_input=given.flag("exclude_input_in_output", True),
            include_stop_words=given.flag("include_stop_words", False),
            skip_special_tokens=given.flag("skip_special_tokens", True),
            end_ids=given.ids("end_ids"),
            max_concurrent_requests=given.number("max_concurrent_requests", 16),
            llm_names={ours.strip(): theirs.strip() for ours, theirs in pairs},
            llm_lacks=frozenset(name.strip() for name in given.text("llm_lacks_outputs").split(",")),
        )


@dataclass(frozen=True)
class Job:
    """One answer to one prompt. `sampling` holds tensors by the LLM models' names, batch dimension included."""

    request_id: str
    inputs: Inputs
    wanted: frozenset[str]
    max_tokens: int
    min_tokens: int
    draft_tokens: int
    """Most draft tokens per round that the request (or the server's default) asks for."""
    draft_reason: str
    """Whose wish `draft_tokens` is: `requested`, or `inputs` where other inputs forbid drafts."""
    draft_logits: bool
    """Acceptance by logits, where that is another thing than by tokens."""
    threshold: float | None
    stream: bool
    exclude_input: bool
    stop_texts: tuple[str, ...]
    task: str | None
    beams: int
    seed: int | None
    greedy: bool
    """Every token is the best one, so that random numbers do not matter."""
    sampling: dict[str, Array]
    target_only: dict[str, Array]
    places: dict[str, int] = field(default_factory=dict)
    """batch_index and sequence_index of this answer, where the request has several."""
    arrival_ns: int = field(default_factory=time.monotonic_ns)

    @classmethod
    def all_of(cls, request_id: str, wanted: frozenset[str], inputs: Inputs, settings: Settings) -> tuple[Job, ...]:
        """A job for each answer: of each prompt as many as num_return_sequences says. Raises Refused."""
        size = len(inputs.array("text_input")) if "text_input" in inputs else 1
        rows = [inputs] if size == 1 else [inputs.row(i) for i in range(size)]
        jobs = [cls.of(request_id, wanted, row, settings, batch=size) for row in rows]
        return tuple(
            job._placed({"batch_index": i} if size > 1 else {}, number, sequences)
            for i, job in enumerate(jobs)
            for sequences in (1 if job.beams > 1 else job.inputs.integer("num_return_sequences", 1),)
            for number in range(sequences)
        )

    @classmethod
    def of(cls, request_id: str, wanted: frozenset[str], inputs: Inputs, settings: Settings, batch: int = 1) -> Job:
        """Check and read the inputs of one prompt. Raises Refused."""
        _check(inputs, settings)
        several = batch > 1 or (inputs.integer("num_return_sequences") or 1) > 1
        if not settings.decoupled and (several or inputs.flag("stream")):
            raise Refused("this server answers with one response (serving.decoupled is false): send no stream, and "
                          "one prompt for one answer")  # fmt: skip
        draft_tokens = inputs.integer("num_draft_tokens", settings.default_draft_tokens)
        if draft_tokens < 0:
            raise Refused(f"num_draft_tokens is {draft_tokens}; it must be 0 (no speculation) or more")
        target_only = [name for name in TARGET_ONLY if _given(inputs, name)]
        obstacle = _obstacle(inputs, target_only, batch)
        if obstacle and draft_tokens and "num_draft_tokens" in inputs:
            raise Refused(f"{obstacle} does not go together with draft tokens; send num_draft_tokens 0")
        task = inputs.array("task")
        logits = inputs.flag("use_draft_logits", settings.default_draft_logits)
        return cls(
            request_id=request_id or uuid.uuid4().hex,
            inputs=inputs,
            wanted=wanted,
            max_tokens=inputs.integer("max_tokens"),
            min_tokens=inputs.integer("min_tokens", 0),
            draft_tokens=0 if obstacle else draft_tokens,
            draft_reason="inputs" if obstacle and draft_tokens else "requested",
            draft_logits=logits and _by_logits(inputs, settings),
            threshold=inputs.real("draft_acceptance_threshold", settings.acceptance_threshold),
            stream=inputs.flag("stream"),
            exclude_input=inputs.flag("exclude_input_in_output", settings.exclude_input),
            stop_texts=tuple(inputs.words("stop_words")),
            task=None if task is None else text(task.reshape(-1)[0], "task"),
            beams=inputs.integer("beam_width", 1),
            seed=inputs.integer("seed"),
            greedy=_greedy(inputs),
            sampling={theirs: _two_dims(inputs, ours) for ours, theirs in SAMPLING.items() if ours in inputs},
            target_only={name: _two_dims(inputs, name) for name in target_only},
        )

    def _placed(self, places: dict[str, int], number: int, sequences: int) -> Job:
        """This job as one of several answers: further sequences of a prompt are drawn with further seeds."""
        if sequences == 1:
            return replace(self, places=places) if places else self
        seed = None if self.seed is None else (self.seed + number) % 2**64
        return replace(self, places=places | {"sequence_index": number}, seed=seed)


def _check(inputs: Inputs, settings: Settings) -> None:
    for name in ("text_input", "max_tokens"):
        if name not in inputs:
            raise Refused(f"{name} is missing")
    for name in UNSUPPORTED:
        if name in inputs:
            raise Refused(f"{name}: this pipeline takes text only")
    for name in ("text_input", "bad_words", "embedding_bias_words"):
        inputs.words(name)  # what is no text is told by the client's name of it, not by preprocessing's
    if inputs.array("text_input").size != 1:
        raise Refused(f"text_input holds {inputs.array('text_input').size} texts for one prompt")
    _check_numbers(inputs, settings)


def _check_numbers(inputs: Inputs, settings: Settings) -> None:
    for name in ("max_tokens", "beam_width", "num_return_sequences"):
        if inputs.integer(name, 1) < 1:
            raise Refused(f"{name} is {inputs.integer(name)}; it must be at least 1")
    if inputs.integer("min_tokens", 0) < 0:
        raise Refused(f"min_tokens is {inputs.integer('min_tokens')}; it cannot be negative")
    _, size = settings.vocabularies
    if size is not None and inputs.integer("end_id", -1) >= size:
        raise Refused(f"end_id is {inputs.integer('end_id')}; it must be below {size}, the size of the vocabulary")
    threshold = inputs.real("draft_acceptance_threshold", 1.0)
    if not 0.0 < threshold <= 1.0:
        raise Refused(f"draft_acceptance_threshold is {threshold:g}; it must be above 0 and at most 1")


def _obstacle(inputs: Inputs, target_only: list[str], batch: int) -> str:
    """Why this request cannot have drafts; empty where it can."""
    if batch > 1:
        return f"text_input with {batch} prompts"
    for name in ("beam_width", "num_return_sequences"):
        if inputs.integer(name, 1) > 1:
            return f"{name} {inputs.integer(name)}"
    return target_only[0] if target_only else ""


def _by_logits(inputs: Inputs, settings: Settings) -> bool:
    """Whether acceptance by logits is possible, and of any use.

    A greedy draft token has no other chance than to be the target's own. What forbids and penalises tokens does so by
    all that came before, which draft logits do not tell; and a handle stands for logits before temperature and
    filters. Acceptance by tokens gives the same answers, or the same distribution, in all these cases.
    """
    ruled = any(inputs.real(name, neutral) != neutral for name, neutral in NEUTRAL.items()) or any(
        inputs.words(name) for name in ("bad_words", "embedding_bias_words")
    )
    temperature, top_k, top_p = _filters(inputs)
    plain = temperature == 1.0 and top_k == 0 and top_p >= 1.0
    return not _greedy(inputs) and not ruled and (plain or not settings.fast_logits)


def _filters(inputs: Inputs) -> tuple[float, int, float]:
    return inputs.real("temperature", 1.0), inputs.integer("top_k", 0), inputs.real("top_p", 0.0)


def _greedy(inputs: Inputs) -> bool:
    """Whether every token is the best one: TensorRT-LLM's rule, which without a filter heeds no temperature."""
    temperature, top_k, top_p = _filters(inputs)
    return temperature == 0.0 or top_k == 1 or (top_k == 0 and top_p <= 0.0)


def _given(inputs: Inputs, name: str) -> bool:
    return inputs.flag(name) if name.startswith("return_") else name in inputs


def _two_dims(inputs: Inputs, name: str) -> Array:
    """Scalars reach a Python model as [B] or [B, 1]; the LLM models expect [B, 1] from their clients."""
    array = inputs.array(name)
    return array.reshape(1, 1) if array.size == 1 and array.ndim < 3 else np.asarray(array)
