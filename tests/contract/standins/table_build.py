"""Arguments of `trtllm-build`, by hand from published facts (§1.1 of the fact sheet unless a row says otherwise).

Rows marked `source` stand in trtllm-build's own list of plugin arguments (tensorrt_llm/plugin/plugin.py,
`cli_plugin_args`, as publicly stored for 0.16 and for the later tree) and not in the fact sheet's table.
"""

from __future__ import annotations

from .rows import Row

_DTYPES = ("auto", "float16", "float32", "bfloat16", "int32", "disable")
_GEMM = ("auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable")
_FP8 = ("fp8", "disable")
_LIST = "plugin.py, cli_plugin_args"
_UNSURE = "not in the tree of December 2024; first release unknown, documented for the newest only"

PLAIN = (
    Row("--checkpoint_dir", "path"),
    Row("--model_config", "path"),
    Row("--build_config", "path"),
    Row("--model_cls_file", "path"),
    Row("--model_cls_name"),
    Row("--output_dir", "path", "engine_outputs"),
    Row("--max_batch_size", "int", 2048),
    Row("--max_input_len", "int", 1024),
    Row("--max_seq_len --max_decoder_seq_len", "int"),
    Row("--max_beam_width", "int", 1),
    Row("--max_num_tokens", "int", 8192),
    Row("--opt_num_tokens", "int"),
    Row("--max_encoder_input_len", "int", 1024),
    Row("--max_prompt_embedding_table_size --max_multimodal_len", "int", 0),
    Row("--kv_cache_type", "choice", choices=("continuous", "paged", "disabled"), unset=True),
    Row("--paged_kv_cache", "str", unset=True, source="deprecated"),
    Row("--input_timing_cache", "path"),
    Row("--output_timing_cache", "path", "model.cache"),
    Row("--profiling_verbosity", "choice", "layer_names_only", ("layer_names_only", "detailed", "none")),
    Row("--strip_plan", "flag", False),
    Row("--weight_sparsity", "flag", False),
    Row("--weight_streaming", "flag", False),
    Row("--fast_build", "flag", False),
    Row("--workers", "int", 1),
    Row("--log_level", "choice", "info", ("internal_error", "error", "warning", "info", "verbose", "debug", "trace")),
    Row("--enable_debug_output", "flag", False),
    Row("--dry_run", "flag", False),
    Row("--monitor_memory", "flag", False),
    # A switch in the early tree, a folder in the late one; 0.18 repeats 0.17. In between: not documented, refused.
    Row("--visualize_network", "flag", False, before="0.19.0"),
    Row("--visualize_network", "path", since="1.2.0"),
    Row("--logits_dtype", "choice", choices=("float16", "float32")),
    Row("--gather_context_logits", "flag", False),
    Row("--gather_generation_logits", "flag", False),
    Row("--gather_all_token_logits", "flag", False),
    Row("--lora_dir", "path", many=True),
    Row("--lora_ckpt_source", "choice", "hf", ("hf", "nemo")),
    Row("--lora_target_modules", "str", many=True),
    Row("--max_lora_rank", "int", 64),
    Row(
        "--speculative_decoding_mode", "choice",
        choices=("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle"),
    ),
    Row("--max_draft_len", "int", 0),
    # Present in the early tree and a little later, gone in the late one; "don't pass".
    Row("--auto_parallel", "int", 1, before="0.19.0"),
    Row("--gpus_per_node", "int", 8, before="0.19.0"),
    Row("--cluster_key", "str", before="0.19.0"),
)  # fmt: skip

PLUGINS = (
    Row("--gpt_attention_plugin", "choice", "auto", _DTYPES),
    Row("--gemm_plugin", "choice", "disable", _GEMM),
    Row("--nccl_plugin", "choice", "auto", _DTYPES),
    Row("--moe_plugin", "choice", "auto", _DTYPES),
    Row("--low_latency_gemm_plugin", "choice", "disable", _FP8),
    Row("--gemm_swiglu_plugin", "choice", "disable", _FP8),
    Row("--gemm_allreduce_plugin", "choice", "disable", ("float16", "bfloat16", "disable"), since="1.2.0",
        source=_UNSURE),
    Row("--bert_attention_plugin", "choice", "auto", _DTYPES, source=_LIST),
    Row("--fp8_rowwise_gemm_plugin", "choice", "disable", _DTYPES, source=_LIST),
    Row("--lora_plugin", "choice", "disable", _DTYPES, source=_LIST),
    Row("--mamba_conv1d_plugin", "choice", "auto", _DTYPES, source=_LIST),
    Row("--low_latency_gemm_swiglu_plugin", "choice", "disable", _FP8, source=_LIST),
    Row("--dora_plugin", "onoff", "disable", since="1.2.0", source=f"{_LIST}; {_UNSURE}"),
    Row("--context_fmha", "onoff", "enable"),
    Row("--remove_input_padding", "onoff", "enable"),
    Row("--tokens_per_block", "int", 64, late_default=32),
    Row("--use_paged_context_fmha", "onoff", "disable", late_default="enable"),
    Row("--use_fp8_context_fmha", "onoff", "disable", late_default="enable"),
    Row("--multiple_profiles", "onoff", "disable"),
    Row("--reduce_fusion", "onoff", "disable"),
    Row("--user_buffer", "onoff", "disable"),
    Row("--use_fused_mlp", "onoff", "enable"),
    Row("--norm_quant_fusion", "onoff", "disable", since="1.2.0", source=_UNSURE),
    Row("--fuse_fp4_quant", "onoff", "disable", since="1.2.0", source=_UNSURE),
    Row("--bert_context_fmha_fp32_acc", "onoff", "disable", source=_LIST),
    Row("--paged_state", "onoff", "enable", source=_LIST),
    Row("--streamingllm", "onoff", "disable", source=_LIST),
    Row("--pp_reduce_scatter", "onoff", "disable", since="1.2.0", source=f"{_LIST}; {_UNSURE}"),
)  # fmt: skip

BUILD = PLAIN + PLUGINS

MODES = {
    None: 1, "draft_tokens_external": 2, "medusa": 4, "lookahead_decoding": 8, "explicit_draft_tokens": 16, "eagle": 32,
}  # fmt: skip
"""build_config.speculative_decoding_mode as it is stored (§4)."""
