"""Settings of `backend: pytorch`: what TensorRT-LLM's LLM API is told besides the limits of `engine`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from trtspec.config.section import Fraction, PositiveInt, Section

OptionName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
DraftLength = Annotated[int, Field(ge=0, le=128, strict=True)]
RESERVED = (
    *("model", "backend", "tensor_parallel_size", "pipeline_parallel_size", "dtype", "max_batch_size", "max_seq_len"),
    *("max_num_tokens", "speculative_config", "disable_overlap_scheduler", "enable_chunked_prefill", "triton_config"),
)
"""LLM() arguments that follow from other keys of the configuration."""


class PyTorch(Section):
    """The LLM API (`backend: pytorch`). It always drafts speculation.draft_len tokens; a request cannot choose."""

    disable_overlap_scheduler: bool = True
    """Steps do not overlap. With the overlap scheduler some versions answer sampled requests greedily."""
    enable_block_reuse: bool = True
    """Keep the KV cache of prompts for later requests that begin alike."""
    free_gpu_memory_fraction: Fraction | None = None
    """Share of the memory left after loading that both KV caches get. Unset: from the memory plan, else 0.9."""
    chunked_prefill: bool = False
    """Long prompts in pieces of max_num_tokens."""
    max_concurrency: PositiveInt | None = None
    """Speculate only up to this many requests at once. Excludes draft_len_schedule."""
    draft_len_schedule: dict[PositiveInt, DraftLength] | None = None
    """Draft length by requests at once: `{1: 5, 9: 2}` drafts 5, and 2 from nine requests on."""
    acceptance_window: PositiveInt | None = None
    """Watch acceptance over this many requests and stop speculating, for good, below the threshold beside it."""
    acceptance_length_threshold: Annotated[float, Field(ge=0.0, strict=True)] | None = None
    """Least accepted tokens a round; TensorRT-LLM 1.1 - 1.3.0rc3."""
    acceptance_rate_threshold: Fraction | None = None
    """Least accepted ÷ drafted; TensorRT-LLM 1.3.0rc4 and newer."""
    options: dict[OptionName, Any] = Field(default={})
    """Further arguments of LLM(), passed on as they are, such as `{attn_backend: FLASHINFER}`."""

    @model_validator(mode="after")
    def _consistent(self) -> PyTorch:
        if self.max_concurrency is not None and self.draft_len_schedule is not None:
            raise ValueError("max_concurrency and draft_len_schedule exclude each other; a schedule may end with 0")
        schedule = self.draft_len_schedule
        if schedule is not None and 1 not in schedule:
            raise ValueError("draft_len_schedule begins with 1, the draft length of a single request")
        thresholds = [self.acceptance_length_threshold, self.acceptance_rate_threshold]
        given = sum(threshold is not None for threshold in thresholds)
        if given != (self.acceptance_window is not None):
            raise ValueError("acceptance_window goes with one of the two acceptance thresholds, and they with it")
        taken = sorted(set(self.options) & set(RESERVED))
        if taken:
            raise ValueError(f"options.{taken[0]} follows from other keys of this configuration; set those")
        return self
