"""Architectures that not every version builds an engine of, and pairs that were reported to fail."""

from __future__ import annotations

from dataclasses import dataclass

from trtspec.versions.row import LAST, NOTES, Row, Span


@dataclass(frozen=True, kw_only=True)
class Architecture(Row):
    """`name` is the class in config.json; `partial_rotary` narrows a row to models that rotate part of a head."""

    name: str
    partial_rotary: bool = False


ARCHITECTURES = (
    Architecture(name="Qwen3ForCausalLM", span=Span("1.0.0", LAST), source=f"{NOTES}, 1.0: engine of dense Qwen3"),
    Architecture(name="Qwen3MoeForCausalLM", span=Span("1.0.0", LAST), source=f"{NOTES}, 1.0", evidence="inferred"),
    Architecture(name="Gemma3ForCausalLM", span=Span("0.19.0", LAST), source=f"{NOTES}, 0.19: text only"),
    Architecture(name="Gemma3ForConditionalGeneration", span=Span("0.19.0", LAST), source=f"{NOTES}, 0.19: text only"),
    Architecture(name="Phi3ForCausalLM", partial_rotary=True, span=Span("0.19.0", LAST),
                 source=f"{NOTES}, 0.19: Phi-4-mini"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Report(Row):
    """A target architecture that was reported not to work with drafts, whatever the version."""

    name: str


_GEMMA3 = "no attention kernels for speculation with Gemma 3 were reported"
REPORTS = (
    Report(name="Gemma2ForCausalLM", source="TensorRT-LLM issue 2804",
           note="Gemma 2 27B with a 2B draft was reported not to work at 0.17"),
    Report(name="Gemma3ForCausalLM", source="TensorRT-LLM issue 6067", note=_GEMMA3),
    Report(name="Gemma3ForConditionalGeneration", source="TensorRT-LLM issue 6067", note=_GEMMA3),
)  # fmt: skip
