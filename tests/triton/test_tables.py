"""The tensor tables against a second transcription of TensorRT-LLM's templates."""

from __future__ import annotations

import pytest

from trtspec.triton import tables
from trtspec.triton.tables import Tensor, table


def _names(text: str) -> list[str]:
    return text.split()


# name: (type, dims, flags). Written from the templates' description, not from the tables: grouped by what they are.
LLM_INPUTS = {
    "input_ids": ("INT32", (-1,), "opt ragged"),
    "input_lengths": ("INT32", (1,), "scalar"),
    "request_output_len": ("INT32", (1,), "scalar"),
    "draft_input_ids": ("INT32", (-1,), "opt ragged"),
    "draft_logits": ("FP32", (-1, -1), "opt ragged"),
    "draft_acceptance_threshold": ("FP32", (1,), "opt scalar"),
    **dict.fromkeys(("decoder_input_ids",), ("INT32", (-1,), "opt ragged")),
    "encoder_input_features": ("FP16", (-1, -1), "opt ragged"),
    **dict.fromkeys(("stop_words_list", "bad_words_list"), ("INT32", (2, -1), "opt ragged")),
    "embedding_bias": ("FP32", (-1,), "opt ragged"),
    **dict.fromkeys(
        _names(
            "num_return_sequences decoder_input_lengths encoder_output_lengths end_id pad_id beam_width runtime_top_k "
            "runtime_top_p_reset_ids min_tokens prompt_vocab_size"
        ),
        ("INT32", (1,), "opt scalar"),
    ),
    **dict.fromkeys(
        _names(
            "temperature runtime_top_p runtime_top_p_min runtime_top_p_decay len_penalty repetition_penalty "
            "beam_search_diversity_rate presence_penalty frequency_penalty"
        ),
        ("FP32", (1,), "opt scalar"),
    ),
    **dict.fromkeys(("seed", "lora_task_id"), ("UINT64", (1,), "opt scalar")),
    **dict.fromkeys(
        _names(
            "early_stopping return_log_probs return_context_logits return_generation_logits return_perf_metrics "
            "exclude_input_in_output stop streaming return_num_input_tokens return_num_output_tokens"
        ),
        ("BOOL", (1,), "opt scalar"),
    ),
    "prompt_embedding_table": ("FP16", (-1, -1), "opt ragged"),
    "prompt_table_extra_ids": ("UINT64", (-1,), "opt ragged"),
    "cross_attention_mask": ("BOOL", (-1, -1), "opt ragged"),
    "skip_cross_attn_blocks": ("BOOL", (1,), "opt ragged"),
    "mrope_rotary_cos_sin": ("FP32", (-1,), "opt"),
    "mrope_position_deltas": ("INT64", (1,), "opt"),
    "lora_weights": ("FP16", (-1, -1), "opt ragged"),
    "lora_config": ("INT32", (-1, 3), "opt ragged"),
    "context_phase_params": ("UINT8", (-1,), "opt ragged"),
    **{
        f"retention_token_range_{part}": ("INT32", (-1,), "opt ragged")
        for part in ("starts", "ends", "priorities", "durations_ms")
    },
    **dict.fromkeys(("retention_decode_priority", "retention_decode_duration_ms"), ("INT32", (1,), "opt ragged")),
    **dict.fromkeys(("guided_decoding_guide_type", "guided_decoding_guide"), ("STRING", (1,), "opt ragged")),
    **{f"lookahead_{part}_size": ("INT32", (1,), "opt ragged") for part in ("window", "ngram", "verification_set")},
}
SHARED = [
    ("cum_log_probs", "FP32", (-1,)),
    ("output_log_probs", "FP32", (-1, -1)),
    ("context_logits", "FP32", (-1, -1)),
    ("generation_logits", "FP32", (-1, -1, -1)),
    ("batch_index", "INT32", (1,)),
    ("sequence_index", "INT32", (1,)),
]
PERF = [
    *((f"kv_cache_{part}_blocks", "INT32", (1,)) for part in ("alloc_new", "reused", "alloc_total")),
    *((f"{what}_time_ns", "INT64", (1,)) for what in ("arrival", "first_scheduled", "first_token", "last_token")),
    ("acceptance_rate", "FP32", (1,)),
    ("total_accepted_draft_tokens", "INT32", (1,)),
    ("total_draft_tokens", "INT32", (1,)),
    ("num_input_tokens", "INT32", (1,)),
    ("num_output_tokens", "INT32", (1,)),
]
TOKENS = [("output_ids", "INT32", (-1, -1)), ("sequence_length", "INT32", (-1,))]
TEXT = [("text_output", "STRING", (-1,))]
OURS = [
    ("spec_rounds", "INT32", (1,)),
    ("spec_tested", "INT32", (1,)),
    ("spec_histogram", "INT32", (2, -1, -1)),
    ("spec_mode", "STRING", (1,)),
    ("finish_reason", "STRING", (1,)),
]
BLS_INPUTS = {
    "text_input": ("STRING", (1,), ""),
    "max_tokens": ("INT32", (1,), ""),
    **dict.fromkeys(
        _names("num_draft_tokens end_id pad_id top_k min_tokens beam_width prompt_vocab_size"),
        ("INT32", (1,), "opt"),
    ),
    **dict.fromkeys(("stream", "exclude_input_in_output"), ("BOOL", (1,), "opt")),
    **dict.fromkeys(
        _names(
            "use_draft_logits return_log_probs return_context_logits return_generation_logits return_perf_metrics "
            "return_num_input_tokens return_num_output_tokens"
        ),
        ("BOOL", (1,), "opt scalar"),
    ),
    "num_return_sequences": ("INT32", (1,), "opt scalar"),
    "draft_acceptance_threshold": ("FP32", (1,), "opt"),
    **dict.fromkeys(("bad_words", "stop_words", "embedding_bias_words"), ("STRING", (-1,), "opt")),
    "embedding_bias_weights": ("FP32", (-1,), "opt"),
    **dict.fromkeys(
        _names("top_p temperature length_penalty repetition_penalty presence_penalty frequency_penalty"),
        ("FP32", (1,), "opt"),
    ),
    "seed": ("UINT64", (1,), "opt"),
    **dict.fromkeys(
        _names("decoder_text_input image_url_input guided_decoding_guide_type guided_decoding_guide task"),
        ("STRING", (1,), "opt"),
    ),
    "image_input": ("FP16", (-1, 3, -1, -1), "opt"),
    **dict.fromkeys(("image_bytes_input", "video_bytes_input"), ("UINT8", (-1, -1, -1, -1), "opt")),
    "prompt_embedding_table": ("FP16", (-1, -1), "opt"),
    "prompt_table_extra_id": ("UINT64", (1,), "opt"),
    "lora_task_id": ("UINT64", (1,), "opt scalar"),
    "lora_weights": ("FP16", (-1, -1), "opt"),
    "lora_config": ("INT32", (-1, 3), "opt"),
}
PICTURES = {"image_input", "image_bytes_input", "image_url_input", "video_bytes_input"}


def _read(text: str) -> tuple[Tensor, ...]:
    return table(text, LOGITS="FP32", FEATURES="FP16")


def _inputs(text: str) -> dict[str, tuple[str, tuple[int, ...], str]]:
    def flags(t: Tensor) -> str:
        return " ".join(w for w, on in (("opt", t.optional), ("ragged", t.ragged), ("scalar", t.scalar)) if on)

    return {t.name: (t.dtype, t.dims, flags(t)) for t in _read(text)}


def _outputs(text: str) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(t.name, t.dtype, t.dims) for t in _read(text)]


def test_inputs_of_the_language_models() -> None:
    assert _inputs(tables.LLM_INPUTS) == LLM_INPUTS


def test_outputs_of_the_language_models_in_order() -> None:
    context = ("context_phase_params", "UINT8", (-1,))
    assert _outputs(tables.LLM_OUTPUTS) == [*TOKENS, *SHARED, context, *PERF]


def test_inputs_of_the_bls_and_the_ensemble() -> None:
    assert _inputs(tables.BLS_INPUTS) == BLS_INPUTS
    less = PICTURES | {"num_draft_tokens", "use_draft_logits", "draft_acceptance_threshold", "task"}
    assert _inputs(tables.ENSEMBLE_INPUTS) == {n: t for n, t in BLS_INPUTS.items() if n not in less}


def test_outputs_of_the_bls_and_the_ensemble_in_order() -> None:
    assert _outputs(tables.ENSEMBLE_OUTPUTS) == [*TEXT, *SHARED, *PERF]
    assert _outputs(tables.BLS_OUTPUTS) == [*TEXT, *SHARED, *PERF, *OURS]


def test_pre_and_postprocessing() -> None:
    names = {t.name for t in _read(tables.PREPROCESSING_INPUTS) if not t.optional}
    assert names == {"QUERY", "REQUEST_OUTPUT_LEN"}
    assert ("STOP_WORDS_IDS", "INT32", (2, -1)) in _outputs(tables.PREPROCESSING_OUTPUTS)
    assert ("OUT_END_ID", "INT32", (1,)) in _outputs(tables.PREPROCESSING_OUTPUTS)
    assert _inputs(tables.POSTPROCESSING_INPUTS) == {
        "TOKENS_BATCH": ("INT32", (-1, -1), ""),
        "SEQUENCE_LENGTH": ("INT32", (-1,), ""),
    }
    assert _outputs(tables.POSTPROCESSING_OUTPUTS) == [("OUTPUT", "STRING", (-1,))]


@pytest.mark.parametrize("row", ["a INT32", "a INT32 1", "a INT32 [1] optional", "a [1]"])
def test_a_bad_row_is_named(row: str) -> None:
    with pytest.raises(ValueError, match="not a row"):
        table(row)
