"""How draft-target speculation is spelled in the options of TensorRT-LLM's LLM API, by version.

Source of the spellings: tensorrt_llm/llmapi/llm_args.py of 1.3.0rc3 and later, docs/source/features/
speculative-decoding.md (04c8822c), triton-inference-server/tutorials 4fe2b90, pull requests 7283 and 12905.
"""

from __future__ import annotations

from dataclasses import dataclass

from trtspec.versions.row import Row, Span


@dataclass(frozen=True, kw_only=True)
class Spelling(Row):
    """Names of the `speculative_config` block. A None name: the version has no such field."""

    decoding_type: str
    draft_model: str
    """Field that names the draft's folder or hub id."""
    draft_model_alias: str | None = None
    decoding_type_alias: str | None = None
    schedule: str | None = None
    """Field with batch size → draft length."""
    schedule_form: str = ""
    window: str | None = None
    """Field: over how many requests acceptance is watched; speculation is switched off for good below the threshold."""
    threshold: str | None = None
    threshold_unit: str = ""
    stable: bool = True
    """False where the LLM API's PyTorch backend was called experimental."""


_REFACTOR = "configuration refactor of February to April 2026 (pull request 12905 for the window fields)"
_LENGTH = "accepted tokens per round, averaged"
_KEY_1 = "must hold key 1 = max_draft_len; two-model mode only"
SPELLINGS = (
    Spelling(span=Span("0.20.0", "0.21.0"), decoding_type="DraftTarget", draft_model="pytorch_weights_path",
             stable=False, source="llm_args.py of 0.20 and 0.21", note="experimental: not offered"),
    Spelling(span=Span("1.0.0", "1.0.0"), decoding_type="DraftTarget", draft_model="speculative_model_dir",
             source="llm_args.py of 1.0 and 1.1"),
    Spelling(span=Span("1.1.0", "1.1.0"), decoding_type="DraftTarget", draft_model="speculative_model_dir",
             window="acceptance_window", threshold="acceptance_length_threshold", threshold_unit=_LENGTH,
             source="llm_args.py of 1.0 and 1.1; pull request 7283", evidence="inferred",
             note="that the window fields are in the final 1.1.0 is not certain"),
    Spelling(span=Span("1.2.0rc1", "1.3.0rc3"), decoding_type="DraftTarget", draft_model="speculative_model",
             draft_model_alias="speculative_model_dir", schedule="draft_len_schedule", schedule_form=_KEY_1,
             window="acceptance_window", threshold="acceptance_length_threshold", threshold_unit=_LENGTH,
             source="llm_args.py of 1.3.0rc3", evidence="between"),
    Spelling(span=Span("1.3.0rc4", None), decoding_type="Draft_Target", draft_model="speculative_model",
             decoding_type_alias="DraftTarget", schedule="draft_len_schedule",
             schedule_form="exclusive with max_concurrency", window="acceptance_rate_window_size",
             threshold="acceptance_rate_threshold", threshold_unit="accepted ÷ drafted, 0 - 1", source=_REFACTOR,
             evidence="inferred",
             note="the candidate that changed the literal is not known, nor whether the old one is still taken"),
)  # fmt: skip
