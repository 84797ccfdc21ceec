"""What a TensorRT-LLM version can do with a pair. Sources: its release notes (docs/source/release-notes.md) and the
issues named beside each entry."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import RunConfig
from trtspec.pairing.findings import Finding

Version = tuple[int, int, int]
ENGINES: tuple[Version, Version] = ((0, 17, 0), (1, 2, 1))
"""First and last release whose engines we build; later ones have none."""
DRAFT_TARGET: Version = (1, 0, 0)
"""First release whose stable LLM API speculates with a draft model."""
FIRST_ENGINE: dict[str, Version] = {
    "Qwen3ForCausalLM": (1, 0, 0),  # notes of 1.0: "TensorRT-Engine Qwen3 (dense) model support"
    "Qwen3MoeForCausalLM": (1, 0, 0),
    "Gemma3ForCausalLM": (0, 19, 0),  # notes of 0.19: text-only
    "Gemma3ForConditionalGeneration": (0, 19, 0),
}
PHI_4_MINI: Version = (0, 19, 0)
REPORTED = {
    "Gemma2ForCausalLM": "Gemma 2 27B with a 2B draft was reported not to work at 0.17 (TensorRT-LLM issue 2804)",
    "Gemma3ForCausalLM": "no attention kernels for speculation with Gemma 3 were reported (TensorRT-LLM issue 6067)",
    "Gemma3ForConditionalGeneration": "no attention kernels for speculation with Gemma 3 were reported "
    "(TensorRT-LLM issue 6067)",
}


def parse(text: str) -> Version:
    """1.2.1 and 1.3.0rc3 alike as three numbers."""
    numbers = [int(part) for part in re.findall(r"\d+", text)[:3]]
    return (numbers[0], numbers[1], numbers[2])


def shown(version: Version) -> str:
    """0.19.0 as 0.19, 1.2.1 as it is."""
    return ".".join(map(str, version if version[2] else version[:2]))


def check_version(facts: dict[str, ModelFacts | None], config: RunConfig) -> Iterator[Finding]:
    """The configured version against backend and architectures; which were reported to fail whatever the version."""
    text, backend = config.engine.tensorrt_llm_version, config.engine.backend
    if text is None:
        return
    version = parse(text)
    yield from _backend(version, text, backend)
    if backend != "tensorrt":
        return
    for role, known in facts.items():
        if known is not None:
            yield from _architecture(role, known, version, text)
    target = facts["target"]
    if target is not None and target.architecture in REPORTED:
        yield Finding(
            "preflight.reported", "warning", "target", REPORTED[target.architecture],
            "try the pair before relying on it, or choose the pytorch backend",
        )  # fmt: skip


def _backend(version: Version, text: str, backend: str) -> Iterator[Finding]:
    first, last = ENGINES
    if backend == "tensorrt" and not first <= version <= last:
        yield Finding(
            "preflight.version", "error", "pair",
            f"the tensorrt backend is for TensorRT-LLM {shown(first)} - {shown(last)}, not {text}",
            "set engine.tensorrt_llm_version to 1.2.1, or engine.backend to pytorch" if version > last
            else "set engine.tensorrt_llm_version to 1.2.1",
        )  # fmt: skip
    if backend == "pytorch" and version < DRAFT_TARGET:
        yield Finding(
            "preflight.version", "error", "pair",
            f"the LLM API of TensorRT-LLM {text} has no stable draft-target decoding; {shown(DRAFT_TARGET)} has",
            "set engine.tensorrt_llm_version to 1.0.0 or newer, or engine.backend to tensorrt",
        )  # fmt: skip


def _architecture(role: str, facts: ModelFacts, version: Version, text: str) -> Iterator[Finding]:
    first = FIRST_ENGINE.get(facts.architecture)
    if facts.architecture == "Phi3ForCausalLM" and facts.partial_rotary_factor < 1:
        first = PHI_4_MINI
    if first is not None and version < first:
        yield Finding(
            "preflight.version", "error", role,
            f"TensorRT-LLM {text} builds no engine of {facts.architecture}; {shown(first)} and newer do",
            f"set engine.tensorrt_llm_version to {shown(ENGINES[1])}",
        )  # fmt: skip
