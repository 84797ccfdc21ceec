"""Every tensor of the generated models, as tables: name, type, dims, flags.

Names, order and types are those of TensorRT-LLM 0.20 - 1.2.1 (`triton_backend/all_models/inflight_batcher_llm`), so
that its clients work unchanged; what is added is marked. Flags: `opt` the client may leave it out, `ragged` batched
without padding, `scalar` the batch dimension is all there is (`reshape: {shape: []}`). LOGITS and FEATURES stand
for types that differ between repositories.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ROW = re.compile(r"^(\w+)\s+([A-Z0-9]+)\s+\[([-\d, ]*)\]\s*((?:(?:opt|ragged|scalar)\s*)*)$")


@dataclass(frozen=True)
class Tensor:
    """One line of a config.pbtxt; `dtype` without the TYPE_ prefix."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool = False
    ragged: bool = False
    scalar: bool = False


def table(text: str, **types: str) -> tuple[Tensor, ...]:
    """Read a table; `types` replaces the type names that differ between repositories. ValueError names a bad row."""
    rows = []
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        match = _ROW.match(line)
        if match is None:
            raise ValueError(f"not a row of a tensor table: {line!r}")
        name, dtype, dims, flags = match.groups()
        shape = tuple(int(d) for d in dims.split(","))
        words = flags.split()
        rows.append(Tensor(name, types.get(dtype, dtype), shape, "opt" in words, "ragged" in words, "scalar" in words))
    return tuple(rows)


LLM_INPUTS = """
    input_ids                       INT32     [-1]      opt ragged
    encoder_input_features          FEATURES  [-1, -1]  opt ragged
    encoder_output_lengths          INT32     [1]       opt scalar
    input_lengths                   INT32     [1]       scalar
    request_output_len              INT32     [1]       scalar
    num_return_sequences            INT32     [1]       opt scalar
    draft_input_ids                 INT32     [-1]      opt ragged
    draft_logits                    LOGITS    [-1, -1]  opt ragged
    draft_acceptance_threshold      FP32      [1]       opt scalar
    decoder_input_ids               INT32     [-1]      opt ragged
    decoder_input_lengths           INT32     [1]       opt scalar
    end_id                          INT32     [1]       opt scalar
    pad_id                          INT32     [1]       opt scalar
    stop_words_list                 INT32     [2, -1]   opt ragged
    bad_words_list                  INT32     [2, -1]   opt ragged
    embedding_bias                  FP32      [-1]      opt ragged
    beam_width                      INT32     [1]       opt scalar
    temperature                     FP32      [1]       opt scalar
    runtime_top_k                   INT32     [1]       opt scalar
    runtime_top_p                   FP32      [1]       opt scalar
    runtime_top_p_min               FP32      [1]       opt scalar
    runtime_top_p_decay             FP32      [1]       opt scalar
    runtime_top_p_reset_ids         INT32     [1]       opt scalar
    len_penalty                     FP32      [1]       opt scalar
    early_stopping                  BOOL      [1]       opt scalar
    repetition_penalty              FP32      [1]       opt scalar
    min_tokens                      INT32     [1]       opt scalar
    beam_search_diversity_rate      FP32      [1]       opt scalar
    presence_penalty                FP32      [1]       opt scalar
    frequency_penalty               FP32      [1]       opt scalar
    seed                            UINT64    [1]       opt scalar
    return_log_probs                BOOL      [1]       opt scalar
    return_context_logits           BOOL      [1]       opt scalar
    return_generation_logits        BOOL      [1]       opt scalar
    return_perf_metrics             BOOL      [1]       opt scalar
    exclude_input_in_output         BOOL      [1]       opt scalar
    stop                            BOOL      [1]       opt scalar
    streaming                       BOOL      [1]       opt scalar
    prompt_embedding_table          FP16      [-1, -1]  opt ragged
    prompt_table_extra_ids          UINT64    [-1]      opt ragged
    prompt_vocab_size               INT32     [1]       opt scalar
    cross_attention_mask            BOOL      [-1, -1]  opt ragged
    skip_cross_attn_blocks          BOOL      [1]       opt ragged
    mrope_rotary_cos_sin            FP32      [-1]      opt
    mrope_position_deltas           INT64     [1]       opt
    lora_task_id                    UINT64    [1]       opt scalar
    lora_weights                    FP16      [-1, -1]  opt ragged
    lora_config                     INT32     [-1, 3]   opt ragged
    context_phase_params            UINT8     [-1]      opt ragged
    retention_token_range_starts    INT32     [-1]      opt ragged
    retention_token_range_ends      INT32     [-1]      opt ragged
    retention_token_range_priorities INT32    [-1]      opt ragged
    retention_token_range_durations_ms INT32  [-1]      opt ragged
    retention_decode_priority       INT32     [1]       opt ragged
    retention_decode_duration_ms    INT32     [1]       opt ragged
    guided_decoding_guide_type      STRING    [1]       opt ragged
    guided_decoding_guide           STRING    [1]       opt ragged
    lookahead_window_size           INT32     [1]       opt ragged
    lookahead_ngram_size            INT32     [1]       opt ragged
    lookahead_verification_set_size INT32     [1]       opt ragged
    return_num_input_tokens         BOOL      [1]       opt scalar
    return_num_output_tokens        BOOL      [1]       opt scalar
"""

# Outputs that the LLM models, the BLS and the ensemble have in common, in upstream's order.
SHARED_OUTPUTS = """
    cum_log_probs                   FP32      [-1]
    output_log_probs                FP32      [-1, -1]
    context_logits                  LOGITS    [-1, -1]
    generation_logits               LOGITS    [-1, -1, -1]
    batch_index                     INT32     [1]
    sequence_index                  INT32     [1]
"""
PERF_OUTPUTS = """
    kv_cache_alloc_new_blocks       INT32     [1]
    kv_cache_reused_blocks          INT32     [1]
    kv_cache_alloc_total_blocks     INT32     [1]
    arrival_time_ns                 INT64     [1]
    first_scheduled_time_ns         INT64     [1]
    first_token_time_ns             INT64     [1]
    last_token_time_ns              INT64     [1]
    acceptance_rate                 FP32      [1]
    total_accepted_draft_tokens     INT32     [1]
    total_draft_tokens              INT32     [1]
    num_input_tokens                INT32     [1]
    num_output_tokens               INT32     [1]
"""
# output_ids first: clients read the shape of the first output.
LLM_OUTPUTS = f"""
    output_ids                      INT32     [-1, -1]
    sequence_length                 INT32     [-1]
    {SHARED_OUTPUTS}
    context_phase_params            UINT8     [-1]
    {PERF_OUTPUTS}
"""

_TEXT_INPUTS = """
    text_input                      STRING    [1]
    decoder_text_input              STRING    [1]       opt
"""
_IMAGE_INPUTS = """
    image_input                     FP16      [-1, 3, -1, -1]     opt
    image_bytes_input               UINT8     [-1, -1, -1, -1]    opt
    image_url_input                 STRING    [1]                 opt
    video_bytes_input               UINT8     [-1, -1, -1, -1]    opt
"""
_GENERATION_INPUTS = """
    max_tokens                      INT32     [1]
    bad_words                       STRING    [-1]      opt
    stop_words                      STRING    [-1]      opt
    exclude_input_in_output         BOOL      [1]       opt
    end_id                          INT32     [1]       opt
    pad_id                          INT32     [1]       opt
    top_k                           INT32     [1]       opt
    top_p                           FP32      [1]       opt
    temperature                     FP32      [1]       opt
    length_penalty                  FP32      [1]       opt
    repetition_penalty              FP32      [1]       opt
    min_tokens                      INT32     [1]       opt
    presence_penalty                FP32      [1]       opt
    frequency_penalty               FP32      [1]       opt
    seed                            UINT64    [1]       opt
    return_log_probs                BOOL      [1]       opt scalar
    return_context_logits           BOOL      [1]       opt scalar
    return_generation_logits        BOOL      [1]       opt scalar
    return_perf_metrics             BOOL      [1]       opt scalar
    num_return_sequences            INT32     [1]       opt scalar
    beam_width                      INT32     [1]       opt
    stream                          BOOL      [1]       opt
    prompt_embedding_table          FP16      [-1, -1]  opt
    prompt_vocab_size               INT32     [1]       opt
    prompt_table_extra_id           UINT64    [1]       opt
    embedding_bias_words            STRING    [-1]      opt
    embedding_bias_weights          FP32      [-1]      opt
    lora_task_id                    UINT64    [1]       opt scalar
    lora_weights                    FP16      [-1, -1]  opt
    lora_config                     INT32     [-1, 3]   opt
    guided_decoding_guide_type      STRING    [1]       opt
    guided_decoding_guide           STRING    [1]       opt
    return_num_input_tokens         BOOL      [1]       opt scalar
    return_num_output_tokens        BOOL      [1]       opt scalar
"""
_DRAFT_INPUTS = """
    num_draft_tokens                INT32     [1]       opt
    use_draft_logits                BOOL      [1]       opt scalar
    draft_acceptance_threshold      FP32      [1]       opt         # ours; the LLM models have it
    task                            STRING    [1]       opt         # ours: label of the serving policy
"""
BLS_INPUTS = f"{_TEXT_INPUTS}{_IMAGE_INPUTS}{_GENERATION_INPUTS}{_DRAFT_INPUTS}"
ENSEMBLE_INPUTS = f"{_TEXT_INPUTS}{_GENERATION_INPUTS}"

ENSEMBLE_OUTPUTS = f"""
    text_output                     STRING    [-1]
    {SHARED_OUTPUTS}
    {PERF_OUTPUTS}
"""
# K stands for the longest draft the target engine takes, plus one.
BLS_OUTPUTS = f"""
    {ENSEMBLE_OUTPUTS}
    spec_rounds                     INT32     [1]       # ours, as all that follow
    spec_tested                     INT32     [1]
    spec_histogram                  INT32     [2, -1, -1]
    spec_mode                       STRING    [1]
    finish_reason                   STRING    [1]
"""

PREPROCESSING_INPUTS = """
    QUERY                           STRING    [1]
    DECODER_QUERY                   STRING    [1]       opt
    IMAGE_BYTES                     UINT8     [-1, -1, -1, -1]    opt
    IMAGE_URL                       STRING    [1]                 opt
    VIDEO_BYTES                     UINT8     [-1, -1, -1, -1]    opt
    REQUEST_OUTPUT_LEN              INT32     [1]
    BAD_WORDS_DICT                  STRING    [-1]      opt
    STOP_WORDS_DICT                 STRING    [-1]      opt
    EMBEDDING_BIAS_WORDS            STRING    [-1]      opt
    EMBEDDING_BIAS_WEIGHTS          FP32      [-1]      opt
    END_ID                          INT32     [1]       opt
    PAD_ID                          INT32     [1]       opt
    PROMPT_TABLE_EXTRA_ID           UINT64    [1]       opt
"""
# Text only: upstream's picture outputs are declared by no step here.
PREPROCESSING_OUTPUTS = """
    INPUT_ID                        INT32     [-1]
    REQUEST_INPUT_LEN               INT32     [1]
    DECODER_INPUT_ID                INT32     [-1]
    REQUEST_DECODER_INPUT_LEN       INT32     [1]
    BAD_WORDS_IDS                   INT32     [2, -1]
    STOP_WORDS_IDS                  INT32     [2, -1]
    EMBEDDING_BIAS                  FP32      [-1]
    REQUEST_OUTPUT_LEN              INT32     [-1]
    OUT_END_ID                      INT32     [1]
    OUT_PAD_ID                      INT32     [1]
    OUT_PROMPT_TABLE_EXTRA_IDS      UINT64    [-1]
"""

POSTPROCESSING_INPUTS = """
    TOKENS_BATCH                    INT32     [-1, -1]
    SEQUENCE_LENGTH                 INT32     [-1]
"""
POSTPROCESSING_OUTPUTS = """
    OUTPUT                          STRING    [-1]
"""
