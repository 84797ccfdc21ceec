"""Tensors and parameters of Triton's `tensorrt_llm` model (and its BLS) that not every version has, or names alike.

From the tags of triton-inference-server/tensorrtllm_backend (all_models/inflight_batcher_llm)
and, from 0.20 on, TensorRT-LLM triton_backend/all_models. What stands in no row is the same from 0.17 to 1.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trtspec.versions.row import Evidence, Row, Span

Place = Literal["input", "output", "parameter"]
_TB = "tensorrtllm_backend tags v0.17.0, v0.18.0, v0.19.0"
_TL = "TensorRT-LLM triton_backend/all_models, newest stored (0c8de69a) and 1.3.0rc3"
_SEED = "tensorrtllm_backend tag v0.19.0 (old names) against branch r25.05 (new names)"


@dataclass(frozen=True, kw_only=True)
class Renamed(Row):
    """One meaning, the name it has in `span`."""

    meaning: str
    name: str
    place: Place = "input"


@dataclass(frozen=True, kw_only=True)
class Addition(Row):
    """A tensor or parameter that only the versions of `span` have."""

    name: str
    place: Place
    models: tuple[str, ...] = ("tensorrt_llm",)


_CONTAINER_25_05 = "the container 25.05 holds 0.19.0, but its branch has the new names: compare its /app/all_models"
OLD, NEW = Span("0.17.0", "0.19.0"), Span("0.20.0", "1.2.1")
RENAMED = (
    Renamed(meaning="min_tokens", name="min_length", span=OLD, source=_SEED, note=_CONTAINER_25_05),
    Renamed(meaning="min_tokens", name="min_tokens", span=NEW, source=_SEED, evidence="between"),
    Renamed(meaning="seed", name="random_seed", span=OLD, source=_SEED, note=_CONTAINER_25_05),
    Renamed(meaning="seed", name="seed", span=NEW, source=_SEED, evidence="between"),
    Renamed(meaning="return_perf_metrics", name="return_kv_cache_reuse_stats", span=Span("0.17.0", "0.18.2"),
            source=_TB),
    Renamed(meaning="return_perf_metrics", name="return_perf_metrics", span=Span("0.19.0", "1.2.1"), source=_TB,
            evidence="between"),
)  # fmt: skip
BOTH_MODELS = ("tensorrt_llm", "tensorrt_llm_bls", "ensemble")


def _added(
    place: Place, names: str, first: str, source: str, evidence: Evidence = "between", *, note: str = "",
    models: tuple[str, ...] = ("tensorrt_llm",),
) -> tuple[Addition, ...]:  # fmt: skip
    span = Span(first, "1.2.1")
    return tuple(
        Addition(name=name, place=place, span=span, source=source, evidence=evidence, note=note, models=models)
        for name in names.split()
    )


_LATE = "added between 0.20 and 1.3.0rc3, release not known: offered from 1.2.0 on"
_GUIDED = "tensorrtllm_backend branch r25.02; not in the tags v0.17.0 and v0.18.0"
_METRICS = (
    "arrival_time_ns first_scheduled_time_ns first_token_time_ns last_token_time_ns acceptance_rate "
    "total_accepted_draft_tokens total_draft_tokens"
)
ADDED: tuple[Addition, ...] = (
    *_added("input", "guided_decoding_guide_type guided_decoding_guide", "0.19.0", _GUIDED, models=BOTH_MODELS),
    *_added("parameter", "tokenizer_dir guided_decoding_backend xgrammar_tokenizer_info_path", "0.19.0", _TB,
            note="the C++ backend reads these keys outside any check: they must exist, empty if unused"),
    *_added("input", "lookahead_window_size lookahead_ngram_size lookahead_verification_set_size", "0.19.0", _TB),
    *_added("parameter", "lookahead_window_size lookahead_ngram_size lookahead_verification_set_size", "0.19.0", _TB),
    *_added("input", "mrope_rotary_cos_sin mrope_position_deltas", "0.19.0", _TB),
    *_added("parameter", "lora_prefetch_dir num_nodes", "0.19.0", _TB),
    *_added("output", _METRICS, "0.19.0", _TB, models=BOTH_MODELS,
            note="each describes one call; the BLS returns those of its last verify call"),
    *_added("input", "return_num_input_tokens return_num_output_tokens", "1.2.0", _TL, "inferred", note=_LATE,
            models=BOTH_MODELS),
    *_added("output", "num_input_tokens num_output_tokens", "1.2.0", _TL, "inferred", note=_LATE, models=BOTH_MODELS),
    Addition(name="enable_trt_overlap", place="parameter", span=Span("0.17.0", "0.18.2"),
             source="template variables of v0.17.0 and v0.18.0", note="ignored by the backend"),
)  # fmt: skip
