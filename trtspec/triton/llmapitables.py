"""Tensors of the `llmapi` model, as tables (see tables.py for the form).

Names, types and order are those of TensorRT-LLM's triton_backend/all_models/llmapi/tensorrt_llm/config.pbtxt from 1.0
on; what is added is marked. The model has no batch dimension. Not taken over: image_url, LoRA, and names of logits
post-processors.
"""

from __future__ import annotations

INPUTS = """
    text_input                                  STRING    [-1]
    streaming                                   BOOL      [1]     opt
    sampling_param_best_of                      INT32     [1]     opt
    sampling_param_temperature                  FP32      [1]     opt
    sampling_param_top_k                        INT32     [1]     opt
    sampling_param_top_p                        FP32      [1]     opt
    sampling_param_frequency_penalty            FP32      [1]     opt
    sampling_param_presence_penalty             FP32      [1]     opt
    sampling_param_max_tokens                   INT32     [1]     opt
    sampling_param_stop                         STRING    [-1]    opt
    sampling_param_seed                         UINT64    [1]     opt
    sampling_param_exclude_input_from_output    BOOL      [1]     opt
    sampling_param_return_perf_metrics          BOOL      [1]     opt
    return_finish_reason                        BOOL      [1]     opt
    return_stop_reason                          BOOL      [1]     opt
    return_cumulative_logprob                   BOOL      [1]     opt
    stop                                        BOOL      [1]     opt
    sampling_param_n                            INT32     [1]     opt     # ours, as all that follow
    sampling_param_min_tokens                   INT32     [1]     opt
    sampling_param_repetition_penalty           FP32      [1]     opt
    sampling_param_ignore_eos                   BOOL      [1]     opt
    sampling_param_add_special_tokens           BOOL      [1]     opt
"""
OUTPUTS = """
    text_output                                 STRING    [-1]
    finish_reason                               STRING    [-1]
    stop_reason                                 STRING    [-1]
    cumulative_logprob                          FP32      [-1]
    kv_cache_reused_block                       INT32     [-1]
    kv_cache_missed_block                       INT32     [-1]
    kv_cache_alloc_new_blocks                   INT32     [-1]
    kv_cache_alloc_total_blocks                 INT32     [-1]
    kv_cache_hit_rate                           FP32      [-1]
    arrival_time_ns                             INT64     [1]
    first_scheduled_time_ns                     INT64     [1]
    first_token_time_ns                         INT64     [1]
    last_token_time_ns                          INT64     [1]
    acceptance_rate                             FP32      [1]
    total_accepted_draft_tokens                 INT32     [1]
    total_draft_tokens                          INT32     [1]
    num_input_tokens                            INT32     [1]     # ours, as all that follow
    num_output_tokens                           INT32     [1]
    spec_rounds                                 INT32     [1]
    spec_source                                 STRING    [1]
"""
