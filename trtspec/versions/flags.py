"""Arguments of `trtllm-build`: one row for each flag and each stretch of versions in which it is alike.

Defaults are what the tool takes when the flag is not given; None is nothing. `must_pass` marks the flags whose default
changed at a release that is not known: they are always given, so that no default matters. Names, kinds and choices come
from the argument parser (`tensorrt_llm/commands/build.py`, `tensorrt_llm/plugin/plugin.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trtspec.versions.row import ALL, BOTH_TREES, NEW_TREE, OLD_TREE, Evidence, Row, Span

Kind = Literal["switch", "int", "text", "path", "choice", "list"]
"""`switch` takes no value; `list` takes one or more; the others take one."""
Default = str | int | None
ENABLE = ("enable", "disable")
DTYPES = ("auto", "float16", "float32", "bfloat16", "int32", "disable")
FP8 = ("fp8", "disable")


@dataclass(frozen=True, kw_only=True)
class Flag(Row):
    """One argument, named without its dashes. A switch has the default None: off."""

    name: str
    kind: Kind
    default: Default = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    must_pass: bool = False
    evidence: Evidence = "between"

    @property
    def option(self) -> str:
        """As on the command line."""
        return f"--{self.name}"


def _flag(
    name: str, kind: Kind, default: Default = None, note: str = "", *, choices: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (), span: Span = ALL, source: str = BOTH_TREES, evidence: Evidence = "between",
    must_pass: bool = False,
) -> Flag:  # fmt: skip
    return Flag(
        name=name, kind=kind, default=default, note=note, choices=choices, aliases=aliases, span=span, source=source,
        evidence=evidence, must_pass=must_pass,
    )  # fmt: skip


def _switch(name: str, note: str = "") -> Flag:
    return _flag(name, "switch", None, note)


def _feature(name: str, default: str, note: str = "") -> Flag:
    return _flag(name, "choice", default, note, choices=ENABLE)


def _plugin(name: str, default: str, choices: tuple[str, ...] = DTYPES, note: str = "") -> Flag:
    return _flag(name, "choice", default, note, choices=choices)


SIZES = (
    _flag("max_batch_size", "int", 2048, "set it small for a draft/target pair"),
    _flag("max_input_len", "int", 1024, "in a target it bounds prompt plus draft tokens"),
    _flag("max_seq_len", "int", None, "the checkpoint's if not given; a target's is recorded with max_draft_len added",
          aliases=("max_decoder_seq_len",)),
    _flag("max_beam_width", "int", 1, "draft/target needs 1"),
    _flag("max_num_tokens", "int", 8192, "raised to max_batch_size × (max_draft_len + 1) in a target"),
    _flag("opt_num_tokens", "int", None, "max_batch_size × max_beam_width if not given"),
    _flag("max_encoder_input_len", "int", 1024, "encoder-decoder models only"),
    _flag("max_prompt_embedding_table_size", "int", 0, aliases=("max_multimodal_len",)),
    _flag("max_draft_len", "int", 0, "longest draft of a verify call; without speculative_decoding_mode a wrong "
          "network is built"),
)  # fmt: skip
FILES = (
    _flag("checkpoint_dir", "path"),
    _flag("model_config", "path"),
    _flag("build_config", "path"),
    _flag("model_cls_file", "path"),
    _flag("model_cls_name", "text"),
    _flag("output_dir", "path", "engine_outputs"),
    _flag("input_timing_cache", "path", None, "ignored if the file does not exist"),
    _flag("output_timing_cache", "path", "model.cache"),
)
_VISUALIZE = "exports the network for debugging"
BUILD = (
    _flag("kv_cache_type", "choice", None, "paged if not given", choices=("continuous", "paged", "disabled")),
    _flag("paged_kv_cache", "text", None, "deprecated: kv_cache_type"),
    _flag("profiling_verbosity", "choice", "layer_names_only", choices=("layer_names_only", "detailed", "none")),
    _switch("strip_plan"),
    _switch("weight_sparsity"),
    _switch("weight_streaming", "needs gemm_plugin disable"),
    _switch("fast_build"),
    _flag("workers", "int", 1, "ranks built at once; clipped to the number of GPUs"),
    _flag("log_level", "choice", "info",
          choices=("internal_error", "error", "warning", "info", "verbose", "debug", "trace")),
    _switch("enable_debug_output"),
    _switch("dry_run"),
    _switch("monitor_memory"),
    _flag("visualize_network", "switch", None, _VISUALIZE, span=Span("0.17.0", "0.18.2"), source=OLD_TREE,
          evidence="inferred"),
    _flag("visualize_network", "path", None, f"{_VISUALIZE}; when it began to take a folder is not known",
          span=Span("1.0.0", "1.2.1"), source=NEW_TREE, evidence="inferred"),
)  # fmt: skip
LOGITS = (
    _flag("logits_dtype", "choice", None, "the checkpoint's if not given", choices=("float16", "float32")),
    _switch("gather_context_logits", "an error together with max_draft_len"),
    _switch("gather_generation_logits", "warned of as deprecated from about 0.19 on, yet recorded; logits acceptance "
            "wants it on both engines"),
    _switch("gather_all_token_logits", "an error together with max_draft_len"),
    _flag("speculative_decoding_mode", "choice", None, "a target needs draft_tokens_external", choices=(
        "draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle")),
)  # fmt: skip
LORA = (
    _flag("lora_dir", "list"),
    _flag("lora_ckpt_source", "choice", "hf", choices=("hf", "nemo")),
    _flag("lora_target_modules", "list"),
    _flag("max_lora_rank", "int", 64),
)
_YOUNG = "plugin.py of a tree between 0.20 and 1.3.0rc3"
_SINCE_10 = "usage text of 0.10; plugin.py of a tree between 0.20 and 1.3.0rc3"
_LATER = Span("0.20.0", "1.2.1")


def _seen(name: str, default: str, choices: tuple[str, ...]) -> Flag:
    """A flag that draft/target needs nothing of, and that was read in one later tree only: not offered before 0.20."""
    return _flag(
        name, "choice", default, "not read for versions before 0.20", choices=choices, span=_LATER, source=_YOUNG,
        evidence="inferred",
    )  # fmt: skip


def _old(name: str, default: str, choices: tuple[str, ...]) -> Flag:
    return _flag(name, "choice", default, choices=choices, source=_SINCE_10)


def _new(name: str, choices: tuple[str, ...]) -> Flag:
    return _flag(
        name, "choice", "disable", "its first release is not known: offered from 1.2.0 on", choices=choices,
        span=Span("1.2.0", "1.2.1"), source=NEW_TREE, evidence="inferred",
    )  # fmt: skip


PLUGINS = (
    _old("bert_attention_plugin", "auto", DTYPES),
    _plugin("gpt_attention_plugin", "auto"),
    _plugin("gemm_plugin", "disable", (*DTYPES[:-1], "fp8", "nvfp4", "disable"),
            "an NVFP4 checkpoint turns nvfp4 on by itself in 1.3.0rc3"),
    _plugin("gemm_swiglu_plugin", "disable", FP8),
    _plugin("low_latency_gemm_plugin", "disable", FP8),
    _seen("fp8_rowwise_gemm_plugin", "disable", DTYPES),
    _seen("low_latency_gemm_swiglu_plugin", "disable", FP8),
    _old("lora_plugin", "disable", DTYPES),
    _plugin("moe_plugin", "auto"),
    _old("mamba_conv1d_plugin", "auto", DTYPES),
    _plugin("nccl_plugin", "auto"),
    _new("gemm_allreduce_plugin", ("float16", "bfloat16", "disable")),
)  # fmt: skip
FEATURES = (
    _feature("context_fmha", "enable"),
    _feature("remove_input_padding", "enable"),
    _feature("multiple_profiles", "disable"),
    _feature("reduce_fusion", "disable", "turned off without tensor parallelism and for most architectures"),
    _feature("user_buffer", "disable", "needs reduce_fusion"),
    _feature("use_fused_mlp", "enable"),
    _old("paged_state", "enable", ENABLE),
    _old("streamingllm", "disable", ENABLE),
    _seen("dora_plugin", "disable", ENABLE),
    _seen("bert_context_fmha_fp32_acc", "disable", ENABLE),
    _seen("pp_reduce_scatter", "disable", ENABLE),
    _new("norm_quant_fusion", ENABLE),
    _new("fuse_fp4_quant", ENABLE),
)


def _flipped(name: str, kind: Kind, old: Default, new: Default, choices: tuple[str, ...] = ()) -> tuple[Flag, ...]:
    """The default differs between the two trees, and the release that changed it is not known: always given."""
    note = f"default {old} in 0.17.0.dev2024121700, {new} in 1.3.0rc3: always passed"
    stretches = (
        (Span("0.17.0", "0.18.2"), old, "older tree: plugin.py; 0.18 has the features of 0.17"),
        (Span("0.19.0", "0.19.0"), None, "no source for 0.19 was found"),
        (Span("0.20.0", "1.2.1"), new, "newer tree: plugin.py; NVIDIA-NeMo/Export-Deploy pull request 131 quotes "
         "use_paged_context_fmha from v0.20.0rc3"),
    )  # fmt: skip
    return tuple(
        _flag(name, kind, default, note, choices=choices, span=span, source=source, evidence="inferred", must_pass=True)
        for span, default, source in stretches
    )


FLIPPED = (
    *_flipped("use_paged_context_fmha", "choice", "disable", "enable", ENABLE),
    *_flipped("use_fp8_context_fmha", "choice", "disable", "enable", ENABLE),
    *_flipped("tokens_per_block", "int", 64, 32),
)
_GONE = "gone by 1.3.0rc3, at a release that is not known: never passed"


def _removed(name: str, kind: Kind, default: Default = None) -> Flag:
    return _flag(name, kind, default, _GONE, span=Span("0.17.0", "0.18.2"), source=OLD_TREE, evidence="inferred")


REMOVED = (_removed("auto_parallel", "int", 1), _removed("gpus_per_node", "int", 8), _removed("cluster_key", "text"))
BUILD_FLAGS: tuple[Flag, ...] = (
    *FILES, *SIZES, *BUILD, *LOGITS, *LORA, *PLUGINS, *FEATURES, *FLIPPED, *REMOVED,
)  # fmt: skip
NEVER_THERE = {
    "tp_size": "parallelism comes from the checkpoint's mapping",
    "pp_size": "parallelism comes from the checkpoint's mapping",
    "max_output_len": "gone before 0.17; max_seq_len is prompt plus answer",
    "use_embedding_sharing": "gone since 0.16",
    "enable_xqa": "gone since 0.16",
    "strongly_typed": "no flag since before 0.17; FP8 weights or KV cache turn it on",
}
"""Flags that people know from older versions or other tools, and why there are none."""
