"""Every flag of one `trtllm-build` run, as values: what speculation needs, the limits, and the user's own.

Draft and target get the same limits. `max_input_len` spans the whole sequence, since a verify call, and every draft
call, sends everything so far as its input; the recorded `max_seq_len` of the target is larger by max_draft_len, which
`trtllm-build` adds itself. Sources: TensorRT-LLM docs/source/legacy/advanced/speculative-decoding.md,
examples/draft_target_model/README.md, tensorrt_llm/builder.py (0.17 - 1.2.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from trtspec.backends.tensorrt.subject import Subject
from trtspec.config import RunConfig
from trtspec.errors import ConfigError

FlagValue = str | int | bool
Flags = dict[str, FlagValue]
"""Flag name without dashes → value; True is a flag without one."""
MODE = "draft_tokens_external"
LOGITS_DTYPE = "float32"
"""Of both engines: converters and modelopt write different ones into checkpoints, and the repository declares FP32."""
PLACES = ("checkpoint_dir", "output_dir", "input_timing_cache", "output_timing_cache")
"""Flags that only a run knows."""
_LIMITS = ("max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "tokens_per_block")
_SPECULATION = "draft/target speculation depends on it"
_NEVER = "it would leave no engine that can be served"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(PLACES, "trtspec chooses it"),
    **{name: f"set engine.{name} instead, which holds for both engines" for name in _LIMITS if name != "max_input_len"},
    "max_input_len": "it spans the whole sequence: set engine.max_seq_len instead",
    "max_decoder_seq_len": "set engine.max_seq_len instead",
    "max_draft_len": "set speculation.max_draft_len instead",
    "workers": "it is the number of ranks: set parallelism of the model instead",
    "speculative_decoding_mode": _SPECULATION,
    "use_paged_context_fmha": f"{_SPECULATION}: the target must reuse its KV cache",
    "context_fmha": f"{_SPECULATION}: without it paged-context attention is off",
    "remove_input_padding": f"{_SPECULATION}: the runtime batches packed inputs only",
    "kv_cache_type": f"{_SPECULATION}: only a paged cache can be reused",
    "paged_kv_cache": f"{_SPECULATION}: only a paged cache can be reused",
    "streamingllm": f"{_SPECULATION}: it turns paged-context attention off",
    "max_beam_width": f"{_SPECULATION}: beams and drafts exclude each other",
    "gather_context_logits": f"{_SPECULATION}: trtllm-build raises an error with it",
    "gather_all_token_logits": f"{_SPECULATION}: trtllm-build raises an error with it",
    "gather_generation_logits": "trtspec gives it where it is needed",
    "logits_dtype": "it must be equal in both engines and in the repository",
    "model_config": "trtspec builds from its checkpoints",
    "build_config": "a file could override every flag",
    "dry_run": _NEVER,
    "strip_plan": _NEVER,
}
"""Flags that `engine.tensorrt.flags` may not hold, and why."""


def engine_flags(config: RunConfig, subject: Subject) -> Flags:
    """All flags but the places, in the order of the command line. ConfigError for an own flag that may not be set."""
    flags: Flags = {
        "max_batch_size": config.engine.max_batch_size,
        "max_input_len": config.engine.max_seq_len,
        "max_seq_len": config.engine.max_seq_len,
        "max_num_tokens": config.max_num_tokens,
        "max_beam_width": 1,
        "kv_cache_type": "paged",
        "tokens_per_block": config.engine.tokens_per_block,
        "remove_input_padding": "enable",
        "context_fmha": "enable",
        "use_paged_context_fmha": "enable",
        "use_fp8_context_fmha": "enable" if subject.fp8 else "disable",
        "gemm_plugin": gemm_plugin(subject.quant_algo),
        "logits_dtype": LOGITS_DTYPE,
    }
    if subject.is_target:
        flags |= {"speculative_decoding_mode": MODE, "max_draft_len": config.speculation.max_draft_len}
    if subject.is_target or config.speculation.acceptance == "logits":
        # In the target also for comparing tokens: `validate` asks it how near a near-tie was.
        flags["gather_generation_logits"] = True
    flags |= {"workers": subject.ranks, "log_level": "info"}
    return flags | own_flags(config, subject)


def gemm_plugin(quant_algo: str | None) -> str:
    """`auto` follows the model's type; FP8 runs on TensorRT's own kernels, NVFP4 on its plugin (its defaults)."""
    if quant_algo == "NVFP4":
        return "nvfp4"
    return "disable" if quant_algo in ("FP8", "FP8_PER_CHANNEL_PER_TOKEN") else "auto"


def own_flags(config: RunConfig, subject: Subject) -> Flags:
    """`engine.tensorrt.flags` in this version's spelling; an off switch is left out."""
    found: Flags = {}
    for name, value in config.engine.tensorrt.flags.items():
        reason = REFUSED.get(name)
        where = f"engine.tensorrt.flags.{name}"
        if reason:
            raise ConfigError(f"--{name} cannot be set by hand: {reason}", where=where, found=value)
        flag = subject.version.flags.get(name)
        if flag is not None and flag.kind != "switch" and isinstance(value, bool):
            value = "enable" if value else "disable"  # YAML reads `on`, `yes` and `true` so
        if flag is not None and flag.kind == "switch" and not isinstance(value, bool):
            raise ConfigError(f"--{name} takes no value", where=where, found=value, fix="write true or false")
        if value is not False:
            found[name] = value
    return found


def arguments(flags: Flags) -> list[str]:
    """As on the command line."""
    words: list[str] = []
    for name, value in flags.items():
        words.append(f"--{name}")
        if value is not True:
            words.append(str(value))
    return words
