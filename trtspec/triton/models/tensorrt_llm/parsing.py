"""The inputs of a TensorRT-LLM request, as requests to the reference engine. Everything wrong is one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from wire import Array, Inputs, Refused, unpack_words

from trtspec.backends.reference import Request, Sampling

# What the reference engine cannot do. Encoder and decoder_* inputs are not here: the ensemble always wires them.
UNSUPPORTED = (
    "encoder_input_features",
    "prompt_embedding_table",
    "prompt_table_extra_ids",
    "prompt_vocab_size",
    "cross_attention_mask",
    "skip_cross_attn_blocks",
    "mrope_rotary_cos_sin",
    "mrope_position_deltas",
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "context_phase_params",
    "retention_token_range_starts",
    "guided_decoding_guide_type",
    "guided_decoding_guide",
    "lookahead_window_size",
    "runtime_top_p_min",
    "runtime_top_p_decay",
    "runtime_top_p_reset_ids",
)

FEW = 8
"""New tokens of a short request."""


@dataclass(frozen=True)
class Wants:
    """How the answer is to look."""

    streaming: bool
    exclude_input: bool
    log_probs: bool
    context_logits: bool
    generation_logits: bool
    perf: bool
    input_count: bool
    output_count: bool


@dataclass(frozen=True)
class LlmJob:
    """One member of a batch."""

    request: Request
    wants: Wants
    batch_size: int = field(default=1)

    @property
    def short(self) -> bool:
        """Whether it takes few steps, as a call of a speculative loop does: drafts, or their verification."""
        few = bool(self.request.draft_ids) or self.request.max_new_tokens <= FEW
        return few and not self.wants.streaming


def stop_request(inputs: Inputs) -> bool:
    """Whether this only asks to stop another request."""
    return inputs.flag("stop")


def parse(request_id: str, inputs: Inputs, vocab_size: int, exclude_input: bool) -> list[LlmJob]:
    """One job per batch member. Raises Refused, or ValueError from the request itself."""
    for name in UNSUPPORTED:
        if name in inputs:
            raise Refused(f"the reference engine does not support {name}")
    if "input_ids" not in inputs:
        raise Refused("input_ids is missing")
    size = len(inputs.array("input_ids"))
    rows = [inputs] if size == 1 else [inputs.row(i) for i in range(size)]
    return [_job(request_id, row, size, vocab_size, exclude_input) for row in rows]


def _job(request_id: str, row: Inputs, size: int, vocab_size: int, exclude_input: bool) -> LlmJob:
    for name in ("beam_width", "num_return_sequences"):
        if (row.integer(name) or 1) != 1:
            raise Refused(f"{name} is {row.integer(name)}; the reference engine does 1")
    ids = row.array("input_ids").reshape(-1)
    length = row.integer("input_lengths", len(ids))
    if length > len(ids):
        raise Refused(f"input_lengths is {length}, but input_ids has {len(ids)}")
    drafts = row.array("draft_input_ids")
    request = Request(
        request_id=request_id,
        input_ids=_ids(ids[:length]),
        max_new_tokens=row.integer("request_output_len", 0),
        sampling=_sampling(row),
        end_ids=_ends(row),
        min_tokens=row.integer("min_tokens", 0),
        draft_ids=() if drafts is None else _ids(drafts),
        draft_logits=_draft_logits(row, drafts, vocab_size),
        acceptance_threshold=row.real("draft_acceptance_threshold"),
        stop_words=unpack_words(row.array("stop_words_list")),
        bad_words=unpack_words(row.array("bad_words_list")),
        embedding_bias=_flat(row.array("embedding_bias")),
        repetition_penalty=_or(row.real("repetition_penalty"), 1.0),
        presence_penalty=_or(row.real("presence_penalty"), 0.0),
        frequency_penalty=_or(row.real("frequency_penalty"), 0.0),
        return_generation_logits=row.flag("return_generation_logits"),
        return_context_logits=row.flag("return_context_logits"),
        return_log_probs=row.flag("return_log_probs"),
    )
    return LlmJob(request, _wants(row, exclude_input), size)


def _wants(row: Inputs, exclude_input: bool) -> Wants:
    return Wants(
        streaming=row.flag("streaming"),
        exclude_input=row.flag("exclude_input_in_output", exclude_input),
        log_probs=row.flag("return_log_probs"),
        context_logits=row.flag("return_context_logits"),
        generation_logits=row.flag("return_generation_logits"),
        perf=row.flag("return_perf_metrics"),
        input_count=row.flag("return_num_input_tokens"),
        output_count=row.flag("return_num_output_tokens"),
    )


def _sampling(row: Inputs) -> Sampling:
    """TensorRT-LLM's defaults: without top_k and top_p the best token is taken, whatever the temperature."""
    top_k, top_p = row.integer("runtime_top_k", 0), _or(row.real("runtime_top_p"), 0.0)
    if top_k == 0 and top_p <= 0.0:
        top_k = 1
    return Sampling(
        temperature=_or(row.real("temperature"), 1.0),
        top_k=top_k,
        top_p=top_p if top_p > 0.0 else 1.0,
        seed=row.integer("seed"),
    )


def _ends(row: Inputs) -> frozenset[int]:
    end = row.integer("end_id", -1)
    return frozenset() if end < 0 else frozenset({end})


def _draft_logits(row: Inputs, drafts: Array | None, vocab_size: int) -> Array | None:
    logits = row.array("draft_logits")
    if logits is None:
        return None
    if drafts is None:
        raise Refused("draft_logits came without draft_input_ids")
    shaped = logits.reshape(logits.shape[-2:]).astype(np.float32)
    if shaped.shape != (drafts.size, vocab_size):
        found, wanted = list(shaped.shape), [drafts.size, vocab_size]
        raise Refused(f"draft_logits is {found}; the target needs {wanted}: both engines need the same vocabulary")
    return shaped


def _flat(array: Array | None) -> Array | None:
    return None if array is None else array.reshape(-1)


def _ids(array: Array) -> tuple[int, ...]:
    return tuple(array.reshape(-1).tolist())


def _or(value: Any, default: float) -> float:
    return default if value is None else value
