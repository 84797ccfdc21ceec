"""Parameters of one `tensorrt_llm` model in the Triton repository, as TensorRT-LLM's backend names them.

Keys, types and defaults: TensorRT-LLM triton_backend/all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt and the
backend's model_state.cc and model_instance_state.cc. A key that is not given is left to the plan (memory, placement,
windows) or to TensorRT-LLM. What would end speculation, or was made for another kind of model, is refused with the
reason; what a TensorRT-LLM version does not have is refused when the repository is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trtspec.config.section import Fraction, PositiveInt, Section

Count = Annotated[int, Field(ge=0, strict=True)]
Gpus = Annotated[tuple[Count, ...], Field(min_length=1)]
Ranks = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
Windows = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
_REUSE = "the target refuses to verify drafts without KV-cache reuse, and the draft re-reads its prompt every round"
_DRAFTS = "draft and target are separate engines here; it belongs to another kind of speculation"
_DECODER = "draft and target are decoder-only models"
_ONE_BEAM = "beams and drafts exclude each other"
BREAKING: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "enable_kv_cache_reuse": ((True,), _REUSE),
    "kv_cache_onboard_blocks": ((True,), "an engine with paged-context attention does not load without onboarding"),
    "exclude_input_in_output": ((False,), "the pipeline asks for it call by call; as a default, TensorRT-LLM's own BLS "
                                "answers with an empty text"),
    "max_beam_width": ((1,), _ONE_BEAM),
    "decoding_mode": (("top_k", "top_p", "top_k_top_p"), "the target verifies drafts by sampling; other modes replace "
                      "that, or need beams or another engine"),
    "gpt_model_type": (("inflight_fused_batching", "inflight_batching"), "static batching is gone from TensorRT-LLM"),
    "sink_token_length": ((0,), "sink tokens switch KV-cache reuse off"),
    "medusa_choices": ((), _DRAFTS),
    "eagle_choices": ((), _DRAFTS),
    "lookahead_window_size": ((), _DRAFTS),
    "lookahead_ngram_size": ((), _DRAFTS),
    "lookahead_verification_set_size": ((), _DRAFTS),
    "encoder_model_path": ((), _DECODER),
    "cross_kv_cache_fraction": ((), _DECODER),
    "speculative_decoding_fast_logits": ((), "set speculation.fast_logits, which concerns both models and the launch"),
}  # fmt: skip
"""Key → values that speculation can live with (none: the key is not set here at all), and why others are refused."""


class ModelParameters(Section):
    """Parameters of one `tensorrt_llm` model (`backend: tensorrt`); unset ones are planned or TensorRT-LLM's own."""

    gpt_model_path: Path | None = None
    """Engine folder as the server sees it, where that is not the folder it was built in (another mount)."""
    gpt_model_type: str | None = None
    """`inflight_fused_batching` (planned) or `inflight_batching`."""
    max_beam_width: PositiveInt | None = None
    """Always 1: beams and drafts exclude each other."""
    max_tokens_in_paged_kv_cache: PositiveInt | None = None
    """Tokens of the KV cache. Planned from hardware.gpu, so that load order does not matter."""
    kv_cache_free_gpu_mem_fraction: Fraction | None = None
    """KV cache as a share of what is free when this model has loaded. Planned; the smaller of both binds."""
    max_attention_window_size: Windows | None = None
    """Attention window in tokens for each layer of the pattern. Planned from the model's sliding windows."""
    sink_token_length: Count | None = None
    """Always 0: sink tokens switch KV-cache reuse off."""
    batch_scheduler_policy: Literal["guaranteed_no_evict", "max_utilization"] | None = None
    """`guaranteed_no_evict` (planned), or `max_utilization`, which may pause running requests."""
    cross_kv_cache_fraction: Fraction | None = None
    """Encoder-decoder models only; refused."""
    kv_cache_host_memory_bytes: Count | None = None
    """Host memory that blocks of the KV cache are moved to; TensorRT-LLM's default is 0."""
    kv_cache_onboard_blocks: bool | None = None
    """Always true: the engines cannot read blocks from host memory."""
    enable_kv_cache_reuse: bool | None = None
    """Always true: the target refuses drafts without it."""
    exclude_input_in_output: bool | None = None
    """Always false: the pipeline says it with each call."""
    cancellation_check_period_ms: PositiveInt | None = None
    """Milliseconds between looks for stopped requests; 100 by default."""
    stats_check_period_ms: PositiveInt | None = None
    """Milliseconds between updates of the nv_trt_llm metrics; 100 by default."""
    recv_poll_period_ms: Count | None = None
    """Milliseconds between looks for new requests of a worker process; TensorRT-LLM's default 0 is a busy loop."""
    iter_stats_max_iterations: Count | None = None
    """Iterations whose statistics are kept."""
    request_stats_max_iterations: Count | None = None
    """Iterations whose statistics of single requests are kept."""
    normalize_log_probs: bool | None = None
    """Log probabilities of normalized distributions; true by default."""
    enable_chunked_context: bool | None = None
    """Long prompts in pieces of engine.max_num_tokens; TensorRT-LLM's default is false."""
    enable_trt_overlap: bool | None = None
    """Overlaps CPU work of two micro-batches; TensorRT-LLM 0.17 - 0.18 only, ignored there."""
    gpu_device_ids: Gpus | None = None
    """GPUs of the ranks, in their order. Planned from hardware.placement."""
    participant_ids: Ranks | None = None
    """MPI ranks, in their order; with speculation.fast_logits only. Planned: the draft's first, from 1 on."""
    num_nodes: PositiveInt | None = None
    """Nodes of a model that spans several; leader mode only. TensorRT-LLM 0.19 and newer."""
    executor_worker_path: Path | None = None
    """Program of a rank's process. Default: the one in Triton's TensorRT-LLM image."""
    lora_cache_optimal_adapter_size: PositiveInt | None = None
    """Adapter rank that the LoRA cache is laid out for; TensorRT-LLM's default is 8."""
    lora_cache_max_adapter_size: PositiveInt | None = None
    """Largest adapter rank; 64 by default."""
    lora_cache_gpu_memory_fraction: Fraction | None = None
    """LoRA cache as a share of free memory; 0.05 by default."""
    lora_cache_host_memory_bytes: Count | None = None
    """LoRA cache in host memory; 1 GB by default."""
    lora_prefetch_dir: Path | None = None
    """Folder of adapters that are loaded at the start; TensorRT-LLM 0.19 and newer."""
    decoding_mode: str | None = None
    """`top_k`, `top_p` or `top_k_top_p` (TensorRT-LLM's default); other modes are refused."""
    gpu_weights_percent: Fraction | None = None
    """Share of the weights kept on the GPU; engines with weight streaming only."""
    multi_block_mode: bool | None = None
    """Attention of one sequence on several thread blocks; true by default."""
    enable_context_fmha_fp32_acc: bool | None = None
    """Context attention accumulates in float32; false by default."""
    cuda_graph_mode: bool | None = None
    """CUDA graphs; false by default."""
    cuda_graph_cache_size: Count | None = None
    """CUDA graphs kept; 0 by default."""
    tokenizer_dir: Path | None = None
    """Tokenizer folder for guided decoding, as the server sees it; with guided_decoding_backend."""
    guided_decoding_backend: Literal["xgrammar"] | None = None
    """Grammar engine of guided, target-only requests; TensorRT-LLM 0.19 and newer."""
    xgrammar_tokenizer_info_path: Path | None = None
    """Tokenizer information that xgrammar has been given beforehand."""
    medusa_choices: str | None = None
    """Medusa heads only; refused."""
    eagle_choices: str | None = None
    """EAGLE only; refused."""
    lookahead_window_size: PositiveInt | None = None
    """Lookahead decoding only; refused."""
    lookahead_ngram_size: PositiveInt | None = None
    """Lookahead decoding only; refused."""
    lookahead_verification_set_size: PositiveInt | None = None
    """Lookahead decoding only; refused."""
    encoder_model_path: Path | None = None
    """Encoder-decoder models only; refused."""
    speculative_decoding_fast_logits: bool | None = None
    """Refused: set speculation.fast_logits, which concerns both models."""
    FORCE_CPU_ONLY_INPUT_TENSORS: Literal["yes", "no"] | None = None
    """Whether a Python model gets its tensors in host memory; `no` by default."""

    @model_validator(mode="after")
    def _keeps_speculation(self) -> ModelParameters:
        for name in self.given:
            value = getattr(self, name)
            if name in BREAKING and value not in BREAKING[name][0]:
                allowed, why = BREAKING[name]
                raise ValueError(f"{name} {_shown(value)} is refused: {why}{_instead(allowed)}")
            if isinstance(value, Path) and not value.is_absolute():
                raise ValueError(f"{name} {value} is not absolute: it is a path as the server sees it")
        for name in ("gpu_device_ids", "participant_ids"):
            ids = getattr(self, name) or ()
            if len(set(ids)) != len(ids):
                raise ValueError(f"{name} {_shown(ids)} names one twice")
        if (self.guided_decoding_backend is None) != (self.tokenizer_dir is None):
            raise ValueError("guided_decoding_backend and tokenizer_dir go together")
        return self

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the keys that have a value."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


def _instead(allowed: tuple[Any, ...]) -> str:
    return f" (leave it out, or set {' | '.join(map(_shown, allowed))})" if allowed else ""
