"""The `parameters` of the LLM models, as text: what speculation needs, what was planned, and what was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trtspec.config import Role
from trtspec.config.parameters import ModelParameters
from trtspec.errors import ConfigError
from trtspec.triton import versioned
from trtspec.versions import TrtLlm
from trtspec.versions.tensors import ADDED

WORKER = "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker"
UNSHARED, SHARED = 0.9, 0.45
"""kv_cache_free_gpu_mem_fraction where memory was not planned: TensorRT-LLM's own, and for two models on one GPU."""
MUST_EXIST = ("tokenizer_dir", "xgrammar_tokenizer_info_path", "guided_decoding_backend")
"""The backend reads these outside of any check: without them, empty or not, no model loads. Older ones ignore them."""


@dataclass(frozen=True)
class Planned:
    """What was worked out for one model; None and empty where nothing was."""

    engine: Path
    fraction: float
    tokens: int | None
    gpus: tuple[int, ...]
    participants: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    fast_logits: bool = False


def llm_parameters(role: Role, planned: Planned, given: ModelParameters, version: TrtLlm) -> dict[str, str]:
    """All parameters of one model for the `tensorrtllm` backend. ConfigError for one that `version` does not have."""
    for name in given.given:
        if not versioned.has(version, name, "parameter"):
            spans = [str(row.span) for row in ADDED if row.name == name and row.place == "parameter"]
            raise ConfigError(
                f"TensorRT-LLM {version} has no parameter {name}",
                where=f"serving.{role}_parameters.{name}",
                expected=f"TensorRT-LLM {' or '.join(spans)}",
                fix="leave it out",
            )
    found = _base(planned.engine, planned.fraction) | _planned(planned)
    found |= {name: text(getattr(given, name)) for name in given.given}
    return found


def reference_parameters(engine: Path, threads: int | None) -> dict[str, str]:
    """The reference engine reads the folder and the threads only; the others are what clients of a config see."""
    return _base(engine, SHARED) | {"reference_threads": "" if threads is None else str(threads)}


def text(value: object) -> str:
    """As the backend reads it: true and false, lists with commas, numbers without exponents."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _base(engine: Path, fraction: float) -> dict[str, str]:
    return {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": str(engine),
        "max_beam_width": "1",
        "batch_scheduler_policy": "guaranteed_no_evict",
        # A fraction of what is free when this model loads.
        "kv_cache_free_gpu_mem_fraction": text(fraction),
        # The target refuses draft tokens without it, and the draft re-reads its prompt every round.
        "enable_kv_cache_reuse": "true",
        "exclude_input_in_output": "false",
        "cancellation_check_period_ms": "100",
        "stats_check_period_ms": "100",
        "normalize_log_probs": "true",
        "executor_worker_path": WORKER,
        **dict.fromkeys(MUST_EXIST, ""),
        "FORCE_CPU_ONLY_INPUT_TENSORS": "no",
    }


def _planned(planned: Planned) -> dict[str, str]:
    found: Mapping[str, object] = {
        "max_tokens_in_paged_kv_cache": planned.tokens,
        "gpu_device_ids": planned.gpus or None,
        "participant_ids": planned.participants or None,
        "max_attention_window_size": planned.windows or None,
        "speculative_decoding_fast_logits": True if planned.fast_logits else None,
    }
    return {name: text(value) for name, value in found.items() if value is not None}
