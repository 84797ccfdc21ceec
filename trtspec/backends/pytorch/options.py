"""The arguments of LLM() for a pair: the content of Triton's model.yaml and of trtllm-serve's options file."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtspec.backends.pytorch.formats import require_formats
from trtspec.backends.pytorch.memory import free_fraction
from trtspec.backends.pytorch.spelling import speculative_config
from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import Role, RunConfig
from trtspec.errors import ConfigError
from trtspec.versions import TrtLlm, choose

Folders = Mapping[Role, Path]
NUM_TOKENS = 8192
"""TensorRT-LLM's own default of max_num_tokens."""


def version_of(config: RunConfig) -> TrtLlm:
    """The version to write for: the configured one, the installed one, or the default. ConfigError, MissingError."""
    configured = config.engine.tensorrt_llm_version
    return choose(configured, None if configured else installed(), "pytorch").version


def installed() -> str | None:
    """TensorRT-LLM of this Python, from its metadata: importing it takes a minute and a GPU."""
    try:
        return importlib.metadata.version("tensorrt-llm")
    except importlib.metadata.PackageNotFoundError:
        return None


def require_possible(config: RunConfig) -> TrtLlm:
    """ConfigError for what no machine could serve this way; the version to write for."""
    version = version_of(config)
    require_formats(config)
    target, draft = config.pair.target.parallelism, config.pair.draft.parallelism
    if "parallelism" in config.pair.draft.model_fields_set and draft != target:
        raise ConfigError(
            "the LLM API runs the draft on the target's GPUs, split like the target", where="pair.draft.parallelism",
            found=f"tensor {draft.tensor}, pipeline {draft.pipeline}",
            expected=f"tensor {target.tensor}, pipeline {target.pipeline}", fix="leave the draft's parallelism out",
        )  # fmt: skip
    if config.hardware.placement == "separate":
        raise ConfigError(
            "the LLM API has both models on the same GPUs", where="hardware.placement", found="separate",
            fix="remove it, or choose engine.backend: tensorrt",
        )  # fmt: skip
    if config.speculation.acceptance == "logits":
        raise ConfigError(
            "the LLM API compares tokens; it has no acceptance by logits", where="speculation.acceptance",
            fix="set it to tokens, or choose engine.backend: tensorrt",
        )  # fmt: skip
    speculative_config(version, "draft", config.speculation.k, config.engine.pytorch)
    return version


def llm_options(config: RunConfig, folders: Folders) -> dict[str, Any]:
    """Keyword arguments of LLM(), in the order people read them. `folders`: the two Hugging Face folders.

    ConfigError as `require_possible`; ModelFileError where a config.json is broken.
    """
    version, settings, engine = require_possible(config), config.engine.pytorch, config.engine
    facts: dict[Role, ModelFacts] = {role: ModelFacts.read(folder) for role, folder in folders.items()}
    fraction = settings.free_gpu_memory_fraction
    own = dict(settings.options)
    cache = {
        "enable_block_reuse": settings.enable_block_reuse,
        "free_gpu_memory_fraction": free_fraction(facts, config) if fraction is None else fraction,
        **_further(own.pop("kv_cache_config", {})),
    }
    return {
        "model": str(folders["target"]),
        "backend": "pytorch",
        "tensor_parallel_size": config.pair.target.parallelism.tensor,
        "pipeline_parallel_size": config.pair.target.parallelism.pipeline,
        "dtype": config.pair.target.dtype,
        "max_batch_size": engine.max_batch_size,
        "max_seq_len": engine.max_seq_len,
        "max_num_tokens": num_tokens(config),
        "enable_chunked_prefill": settings.chunked_prefill,
        "disable_overlap_scheduler": settings.disable_overlap_scheduler,
        "kv_cache_config": cache,
        "speculative_config": speculative_config(version, str(folders["draft"]), config.speculation.k, settings),
        **own,
    }


def num_tokens(config: RunConfig) -> int:
    """Tokens of one step: a whole prompt where prompts are not cut into pieces, and a round of a full batch."""
    engine = config.engine
    round_ = engine.max_batch_size * (config.speculation.k + 1)
    if engine.max_num_tokens is None:
        whole = 0 if engine.pytorch.chunked_prefill else engine.max_input_len
        return max(NUM_TOKENS, whole, round_)
    least = max(round_, 0 if engine.pytorch.chunked_prefill else engine.max_input_len)
    if engine.max_num_tokens < least:
        raise ConfigError(
            "one step cannot hold a whole prompt, or a round of a full batch", where="engine.max_num_tokens",
            found=engine.max_num_tokens, expected=f"at least {least}",
            fix="raise it, or set engine.pytorch.chunked_prefill",
        )  # fmt: skip
    return engine.max_num_tokens


def _further(given: object) -> dict[str, object]:
    if isinstance(given, dict):
        return {str(key): value for key, value in given.items()}
    raise ConfigError("kv_cache_config is a block of keys", where="engine.pytorch.options", found=given)
