"""The six models of a draft/target repository, as values. What each tensor is stands in the tables."""

from __future__ import annotations

from collections.abc import Mapping

from trtspec.config import Role
from trtspec.triton import tables, versioned
from trtspec.triton.parameters import reference_parameters
from trtspec.triton.pbtxt import Model, Queue, Step
from trtspec.triton.plan import RepositoryPlan
from trtspec.triton.tables import table

TARGET = "tensorrt_llm"
DRAFT = "tensorrt_llm_draft"
BLS = "tensorrt_llm_bls"
ENSEMBLE = "ensemble"
PREPROCESSING = "preprocessing"
POSTPROCESSING = "postprocessing"


def models(plan: RepositoryPlan) -> tuple[Model, ...]:
    """All six, in the order a request meets them. A fused pipeline holds the draft itself."""
    return (
        _preprocessing(plan),
        _llm(plan, TARGET),
        *(() if plan.fused else (_llm(plan, DRAFT),)),
        _postprocessing(plan),
        _bls(plan),
        _ensemble(plan),
    )


def _llm(plan: RepositoryPlan, name: str) -> Model:
    role: Role = "target" if name == TARGET else "draft"
    tensorrt = plan.backend == "tensorrt"
    return Model(
        name,
        "tensorrtllm" if tensorrt else "python",
        plan.max_batch_size,
        versioned.llm_inputs(plan.version, plan.logits_dtype),
        versioned.llm_outputs(plan.version, plan.logits_dtype),
        dict(plan.parameters[role]) if tensorrt else _reference(plan, role),
        decoupled=plan.serving.decoupled,
        queue=Queue(plan.max_batch_size, plan.queue_delay, plan.queue_size)
        if tensorrt or plan.serving.dynamic_batching
        else None,
    )


def _reference(plan: RepositoryPlan, role: Role) -> dict[str, str]:
    # The draft's calls are parts of requests; their lengths would say nothing.
    counts = {"count_requests": _flag(role == "target")}
    return reference_parameters(plan.engine_dirs[role], plan.threads) | counts


def _bls(plan: RepositoryPlan) -> Model:
    return Model(
        BLS,
        "python",
        plan.max_batch_size,
        versioned.bls_inputs(plan.version),
        table(tables.BLS_OUTPUTS, LOGITS=plan.logits_dtype),
        {
            "tensorrt_llm_model_name": TARGET,
            "tensorrt_llm_draft_model_name": DRAFT,
            "accumulate_tokens": "false",
            # Ours. Clients such as Triton's OpenAI frontend never send num_draft_tokens.
            "default_num_draft_tokens": str(plan.draft_len),
            "max_draft_len": str(plan.max_draft_len),
            "default_use_draft_logits": _flag(plan.acceptance == "logits"),
            "draft_acceptance_threshold": "" if plan.acceptance_threshold is None else str(plan.acceptance_threshold),
            "exclude_input_in_output": _flag(plan.serving.exclude_input_in_output),
            "include_stop_words": _flag(plan.serving.include_stop_words),
            "skip_special_tokens": "true",
            "end_ids": _ids(plan.end_ids),
            **_widths(plan),
            **_hosting(plan),
            **_older(plan),
            **_fused(plan),
        },
        decoupled=plan.serving.decoupled,
    )


def _widths(plan: RepositoryPlan) -> dict[str, str]:
    """What the BLS must know of the engines to hand logits from call to call."""
    tensorrt = plan.backend == "tensorrt"
    # TensorRT-LLM fills the head up to a multiple of the ranks that share it.
    padded = -(-plan.vocab_size // plan.tensor_parallel) * plan.tensor_parallel
    return {
        "target_vocab_size": str(plan.vocab_size),
        "draft_vocab_size": _optional(plan.draft_vocab_size),
        "target_logits_width": str(padded),
        "speculative_decoding_fast_logits": plan.parameters["target"].get("speculative_decoding_fast_logits", "false")
        if tensorrt
        else "false",
    }


def _hosting(plan: RepositoryPlan) -> dict[str, str]:
    """How the BLS treats its requests. Empty values are unset."""
    serving, guard = plan.serving, plan.serving.guard
    return {
        "max_concurrent_requests": str(serving.concurrent(plan.max_batch_size)),
        "max_waiting_requests": str(serving.max_waiting_requests),
        "request_timeout": _optional(serving.request_timeout),
        "draft_timeout": str(serving.draft_timeout),
        "adaptive_draft_len": _flag(serving.adaptive_draft_len),
        "guard_enabled": _flag(guard.enabled),
        "guard_floor": str(guard.floor),
        "guard_recover": str(guard.recover),
        "guard_window": str(guard.window),
        "guard_probe_every": str(guard.probe_every),
        **_limits(plan),
        "log_requests": _flag(serving.log_requests),
        "log_prompts": _flag(serving.log_prompts),
    }


def _limits(plan: RepositoryPlan) -> dict[str, str]:
    """What one request may hold; preprocessing has the same, for requests that come through the ensemble."""
    limits = plan.serving.limits
    return {
        "limit_prompt_bytes": str(limits.prompt_bytes),
        "limit_max_tokens": _optional(limits.max_tokens),
        "limit_stop_words": str(limits.stop_words),
        "limit_stop_word_bytes": str(limits.stop_word_bytes),
    }


def _optional(value: float | None) -> str:
    return "" if value is None else str(value)


def _fused(plan: RepositoryPlan) -> dict[str, str]:
    """Engines that the BLS opens itself; nothing where it calls models."""
    if not plan.fused:
        return {}
    return {
        "pipeline": "fused",
        "target_engine_path": str(plan.engine_dirs["target"]),
        "draft_engine_path": str(plan.engine_dirs["draft"]),
        "reference_threads": "" if plan.threads is None else str(plan.threads),
        "require_draft": _flag(plan.serving.require_draft),
    }


def _older(plan: RepositoryPlan) -> dict[str, str]:
    """How an older version's LLM models differ from the names that the BLS uses; nothing for the newest."""
    names = ",".join(f"{ours}:{theirs}" for ours, theirs in versioned.renamed(plan.version).items())
    newest = {tensor.name for tensor in versioned.llm_outputs(None, "FP32")}
    lacks = sorted(newest - {tensor.name for tensor in versioned.llm_outputs(plan.version, "FP32")})
    found = {"llm_tensor_names": names, "llm_lacks_outputs": ",".join(lacks)}
    return {key: value for key, value in found.items() if value}


def _preprocessing(plan: RepositoryPlan) -> Model:
    return Model(
        PREPROCESSING,
        "python",
        plan.max_batch_size,
        table(tables.PREPROCESSING_INPUTS),
        table(tables.PREPROCESSING_OUTPUTS),
        {
            "tokenizer_dir": "tokenizer",
            "multimodal_model_path": "",
            "add_special_tokens": "true",
            # Ours.
            "end_ids": _ids(plan.end_ids),
            "pad_id": str(plan.pad_id),
            "vocab_size": str(plan.vocab_size),
            "max_input_len": str(plan.max_input_len),
            "max_seq_len": str(plan.max_seq_len),
            **_limits(plan),
        },
        queue=Queue(),
    )


def _postprocessing(plan: RepositoryPlan) -> Model:
    counts = not versioned.counts_tokens(plan.version)
    return Model(
        POSTPROCESSING,
        "python",
        plan.max_batch_size,
        table(tables.POSTPROCESSING_INPUTS),
        table(tables.POSTPROCESSING_OUTPUTS + (versioned.COUNTING_OUTPUTS if counts else "")),
        {"tokenizer_dir": "tokenizer", "skip_special_tokens": "true"},
        queue=Queue(),
    )


# {tensor of the step: tensor of the ensemble}; a leading underscore marks what only flows between steps.
_TO_PREPROCESSING = {
    "QUERY": "text_input",
    "DECODER_QUERY": "decoder_text_input",
    "REQUEST_OUTPUT_LEN": "max_tokens",
    "BAD_WORDS_DICT": "bad_words",
    "STOP_WORDS_DICT": "stop_words",
    "EMBEDDING_BIAS_WORDS": "embedding_bias_words",
    "EMBEDDING_BIAS_WEIGHTS": "embedding_bias_weights",
    "END_ID": "end_id",
    "PAD_ID": "pad_id",
    "PROMPT_TABLE_EXTRA_ID": "prompt_table_extra_id",
}
_FROM_PREPROCESSING = {
    "INPUT_ID": "_INPUT_ID",
    "REQUEST_INPUT_LEN": "_REQUEST_INPUT_LEN",
    "DECODER_INPUT_ID": "_DECODER_INPUT_ID",
    "REQUEST_DECODER_INPUT_LEN": "_REQUEST_DECODER_INPUT_LEN",
    "REQUEST_OUTPUT_LEN": "_REQUEST_OUTPUT_LEN",
    "STOP_WORDS_IDS": "_STOP_WORDS_IDS",
    "BAD_WORDS_IDS": "_BAD_WORDS_IDS",
    "EMBEDDING_BIAS": "_EMBEDDING_BIAS",
    "OUT_END_ID": "_PREPROCESSOR_END_ID",
    "OUT_PAD_ID": "_PREPROCESSOR_PAD_ID",
    "OUT_PROMPT_TABLE_EXTRA_IDS": "_OUT_PROMPT_TABLE_EXTRA_IDS",
}
_TO_LLM = {
    "input_ids": "_INPUT_ID",
    "decoder_input_ids": "_DECODER_INPUT_ID",
    "input_lengths": "_REQUEST_INPUT_LEN",
    "decoder_input_lengths": "_REQUEST_DECODER_INPUT_LEN",
    "request_output_len": "_REQUEST_OUTPUT_LEN",
    "end_id": "_PREPROCESSOR_END_ID",
    "pad_id": "_PREPROCESSOR_PAD_ID",
    "stop_words_list": "_STOP_WORDS_IDS",
    "bad_words_list": "_BAD_WORDS_IDS",
    "embedding_bias": "_EMBEDDING_BIAS",
    "prompt_table_extra_ids": "_OUT_PROMPT_TABLE_EXTRA_IDS",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "len_penalty": "length_penalty",
    "streaming": "stream",
}
_SAME_NAME = (
    "exclude_input_in_output",
    "temperature",
    "repetition_penalty",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "return_log_probs",
    "return_context_logits",
    "return_generation_logits",
    "return_perf_metrics",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "num_return_sequences",
    "beam_width",
    "prompt_embedding_table",
    "prompt_vocab_size",
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "guided_decoding_guide_type",
    "guided_decoding_guide",
)
_TOKENS = {"output_ids": "_TOKENS_BATCH", "sequence_length": "_SEQUENCE_LENGTH"}
_TOKENS_BACK = {"TOKENS_BATCH": "_TOKENS_BATCH", "SEQUENCE_LENGTH": "_SEQUENCE_LENGTH"}


def _ensemble(plan: RepositoryPlan) -> Model:
    inputs = versioned.ensemble_inputs(plan.version)
    outputs = versioned.ensemble_outputs(plan.version, plan.logits_dtype)
    counts = {} if versioned.counts_tokens(plan.version) else versioned.COUNTS_TO
    through = {o.name: o.name for o in outputs if o.name not in ("text_output", *counts.values())}
    return Model(
        ENSEMBLE,
        None,
        plan.max_batch_size,
        inputs,
        outputs,
        steps=(
            Step(PREPROCESSING, _TO_PREPROCESSING, _FROM_PREPROCESSING),
            Step(TARGET, _TO_LLM | _same(plan), _TOKENS | through),
            Step(POSTPROCESSING, _TOKENS_BACK, {"OUTPUT": "text_output", **counts}),
        ),
    )


def _same(plan: RepositoryPlan) -> dict[str, str]:
    """{input of the target: the ensemble's} of those that clients call as the newest version does."""
    theirs = {tensor.name for tensor in versioned.llm_inputs(plan.version, "FP32")}
    names = versioned.renamed(plan.version)
    pairs = {names.get(name, name): name for name in _SAME_NAME}
    return {name: ours for name, ours in pairs.items() if name in theirs}


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(str(i) for i in ids)


def needs_tokenizer(model: Model) -> bool:
    """Whether the model's folder holds a copy of the tokenizer."""
    return model.name in (PREPROCESSING, POSTPROCESSING, BLS)


_LLM_KEYS = frozenset(
    {
        "gpt_model_type",
        "gpt_model_path",
        "tokenizer_dir",
        "xgrammar_tokenizer_info_path",
        "guided_decoding_backend",
        "enable_kv_cache_reuse",
        "exclude_input_in_output",
    }
)
REQUIRED_PARAMETERS: Mapping[str, frozenset[str]] = {
    TARGET: _LLM_KEYS,
    DRAFT: _LLM_KEYS,
    PREPROCESSING: frozenset({"tokenizer_dir", "multimodal_model_path"}),
    POSTPROCESSING: frozenset({"tokenizer_dir"}),
    BLS: frozenset({"tensorrt_llm_model_name", "tensorrt_llm_draft_model_name", "max_draft_len"}),
}
"""Parameters without which a model does not load or does not speculate."""
