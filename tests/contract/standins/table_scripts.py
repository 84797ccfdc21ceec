"""Arguments of the conversion scripts and of quantize.py (§2.2 - 2.4), and where a release keeps them (§2.1).

Rows with `source` come from the script itself as publicly stored: the fact sheet names the arguments that matter here
and leaves out, for example, the shape arguments of a llama conversion without a model folder.
"""

from __future__ import annotations

from .rows import Row
from .versions import order

_DTYPES = ("auto", "float16", "bfloat16", "float32")
_SCRIPT = "convert_checkpoint.py"
_LATE = "1.2.0"
"""First release of rows that only the later tree is known to have."""

_COMMON = (
    Row("--tp_size", "int", 1),
    Row("--pp_size", "int", 1),
    Row("--moe_tp_size", "int", -1),
    Row("--moe_ep_size", "int", -1),
    Row("--dtype", "choice", "auto", _DTYPES),
    Row("--use_weight_only", "flag", False),
    Row("--disable_weight_only_quant_plugin", "flag", False),
    Row("--smoothquant -sq", "float"),
    Row("--per_channel", "flag", False),
    Row("--per_token", "flag", False),
    Row("--per_group", "flag", False),
    Row("--group_size", "int", 128),
    Row("--int8_kv_cache", "flag", False),
    Row("--calib_dataset", "str", "ccdv/cnn_dailymail"),
    Row("--use_parallel_embedding", "flag", False),
    Row("--embedding_sharding_dim", "int", 0, choices=(0, 1)),
    Row("--load_model_on_cpu", "flag", False),
    Row("--workers", "int", 1),
    Row("--output_dir", "path", "tllm_checkpoint"),
)

LLAMA = (
    Row("--model_dir", "path"),
    Row("--meta_ckpt_dir", "path"),
    *_COMMON,
    Row("--cp_size", "int", 1),
    Row("--weight_only_precision", "choice", "int8", ("int8", "int4", "int8_gptq", "int4_gptq", "int4_awq"),
        optional=True),
    Row("--quant_ckpt_path", "path"),
    Row("--fp8_kv_cache", "flag", False),
    Row("--use_fp8", "flag", False),
    Row("--use_fp8_rowwise", "flag", False),
    Row("--use_meta_fp8_rowwise_recipe", "flag", False),
    Row("--use_nvfp4", "flag", False, since=_LATE),
    Row("--use_qserve", "flag", False),
    Row("--calib_size", "int", 512),
    Row("--calib_max_seq_length", "int", 512),
    Row("--load_by_shard", "flag", False),
    Row("--remove_duplicated_kv_heads", "flag", False),
    Row("--save_config_only", "flag", False),
    Row("--log_level", "str", "info"),
    Row("--vocab_size", "int", 32000, source=_SCRIPT),
    Row("--n_positions", "int", 2048, source=_SCRIPT),
    Row("--n_layer", "int", 32, source=_SCRIPT),
    Row("--n_head", "int", 32, source=_SCRIPT),
    Row("--n_kv_head", "int", source=_SCRIPT),
    Row("--n_embd", "int", 4096, source=_SCRIPT),
    Row("--inter_size", "int", 11008, source=_SCRIPT),
    Row("--rms_norm_eps", "float", 1e-6, source=_SCRIPT),
    Row("--hidden_act", "str", "silu", source=_SCRIPT),
    Row("--rotary_base", "float", 10000.0, source=_SCRIPT),
    Row("--moe_num_experts", "int", 0, source=_SCRIPT),
    Row("--moe_top_k", "int", 0, source=_SCRIPT),
    Row("--moe_renorm_mode", "int", 1, source=_SCRIPT),
)  # fmt: skip

QWEN = (
    Row("--model_dir", "path", required=True),
    *_COMMON,
    Row("--cp_size", "int", 1, since=_LATE),
    Row("--weight_only_precision", "choice", "int8", ("int8", "int4", "int4_gptq"), optional=True, before=_LATE),
    Row("--weight_only_precision", "choice", "int8", ("int8", "int4", "int4_gptq", "int8_gptq"), optional=True,
        since=_LATE),
)  # fmt: skip

_GEMMA_WEIGHTS = ("int8", "int4", "w4a8_awq", "w4a16_awq")
GEMMA = (
    Row("--ckpt-type", "choice", choices=("jax", "keras", "torch", "hf")),
    # Hyphens only at 0.17; the later tree takes underscores as well.
    Row("--model-dir", "path", required=True, before=_LATE),
    Row("--model-dir --model_dir", "path", required=True, since=_LATE),
    Row("--output-model-dir", "path", required=True, before=_LATE),
    Row("--output-model-dir --output_dir", "path", required=True, since=_LATE),
    Row("--world-size", "int", 1),
    Row("--dtype", "choice", choices=("float32", "bfloat16", "float16"), before=_LATE),
    Row("--dtype", "choice", "auto", _DTYPES, since=_LATE),
    Row("--use-weight-only-with-precision", "choice", choices=_GEMMA_WEIGHTS, before=_LATE),
    Row("--use_weight_only", "flag", False, since=_LATE),
    Row("--weight_only_precision --use-weight-only-with-precision", "choice", choices=_GEMMA_WEIGHTS, since=_LATE),
    Row("--use-int8-weight-only-embedding", "flag", False),
    Row("--enable_fp8", "flag", False),
    Row("--fp8_kv_cache", "flag", False),
    Row("--quant_ckpt_path", "path", source=_SCRIPT),
    Row("--calib_dataset", "str", "ccdv/cnn_dailymail", source=_SCRIPT),
    Row("--use_smooth_quant", "flag", False, source=_SCRIPT),
    Row("--int8_kv_cache --calibrate_kv_cache -kv", "flag", False, source=_SCRIPT),
    Row("--per_channel", "flag", False, source=_SCRIPT),
    Row("--per_token", "flag", False, source=_SCRIPT),
    Row("--smoothquant --use_smooth_quant_plugin -sq", "float", source=_SCRIPT),
    Row("--tokenizer_dir", "path", source=_SCRIPT),
    Row("--load_model_on_cpu", "flag", False, source=_SCRIPT),
)

CONVERTERS = {"llama": LLAMA, "qwen": QWEN, "gemma": GEMMA}

_OLD = ("fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "full_prec")
QUANTIZE = (
    Row("--model_dir", "path"),
    Row("--nemo_ckpt_path", "path"),
    Row("--output_dir", "path", "exported_model"),
    Row("--dtype", "choice", "auto", _DTYPES),
    Row("--qformat", "choice", "full_prec", _OLD, before=_LATE),
    Row("--qformat", "choice", "full_prec", (*_OLD, "nvfp4", "fp8_pc_pt"), since=_LATE),
    Row("--kv_cache_dtype", "choice", choices=("int8", "fp8")),
    Row("--awq_block_size", "int", 128),
    Row("--calib_dataset", "str", "cnn_dailymail"),
    Row("--calib_size", "int", 512),
    Row("--calib_max_seq_length", "int", 512),
    Row("--batch_size", "int", 1),
    Row("--seed", "int", 1234),
    Row("--tokenizer_max_seq_length", "int", 2048),
    Row("--tp_size", "int", 1),
    Row("--pp_size", "int", 1),
    Row("--cp_size", "int", 1),
    Row("--device", "choice", "cuda", ("cuda", "cpu")),
    Row("--device_map", "choice", "auto", ("auto", "sequential", "cpu", "gpu"), since=_LATE),
    Row("--quantize_lm_head", "flag", False, since="0.19.0"),
    Row("--autoq_format", "str"),
    Row("--auto_quantize_bits", "float"),
    Row("--num_medusa_heads", "int", 4),
    Row("--num_medusa_layers", "int", 1),
    Row("--max_draft_len", "int", 63),
    Row("--medusa_hidden_act", "str", "silu"),
    Row("--medusa_model_dir", "path"),
    Row("--decoder_type", "choice", "gptnext", ("gptnext", "llama"), source="quantize.py"),
    Row("--calib_tp_size", "int", 1, source="quantize.py"),
    Row("--calib_pp_size", "int", 1, source="quantize.py"),
)


def folders(version: str, model: str) -> tuple[str, ...]:
    """Where a release may keep a model's conversion script, below its `examples`; several where it is not known."""
    old, new = f"examples/{model}", f"examples/models/core/{model}"
    if order(version) < order("0.19.0"):
        return (old,)
    return (old, new) if order(version) < order("0.20.0") else (new,)


QUANTIZE_FOLDER = "examples/quantization"
