"""What a TensorRT-LLM version can do with a pair; the facts and their sources are in :mod:`trtspec.versions`."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import RunConfig
from trtspec.errors import ConfigError
from trtspec.pairing.findings import Finding
from trtspec.versions import DEFAULT, TrtLlm, engine_version, first_of, llm_api_version, shown
from trtspec.versions.architectures import REPORTS


def check_version(facts: dict[str, ModelFacts | None], config: RunConfig) -> Iterator[Finding]:
    """The configured version against backend and architectures; which were reported to fail whatever the version."""
    text, backend = config.engine.tensorrt_llm_version, config.engine.backend
    if text is None:
        return
    try:
        version = llm_api_version(text) if backend == "pytorch" else engine_version(text)
    except ConfigError as error:
        if backend != "reference":
            expected = f"; expected {error.expected}" if error.expected else ""
            yield Finding("preflight.version", "error", "pair", f"{error.what}{expected}", error.fix or "")
        return
    if backend != "tensorrt":
        return
    for role, known in facts.items():
        if known is not None:
            yield from _architecture(role, known, version)
    target = facts["target"]
    for report in REPORTS:
        if target is not None and target.architecture == report.name:
            yield Finding(
                "preflight.reported", "warning", "target", f"{report.note} ({report.source})",
                "try the pair before relying on it, or choose the pytorch backend",
            )  # fmt: skip


def _architecture(role: str, facts: ModelFacts, version: TrtLlm) -> Iterator[Finding]:
    partial = facts.partial_rotary_factor < 1
    if version.builds(facts.architecture, partial_rotary=partial):
        return
    (span,) = first_of(facts.architecture, partial_rotary=partial)
    yield Finding(
        "preflight.version", "error", role,
        f"TensorRT-LLM {version} builds no engine of {facts.architecture}; {shown(str(span.first))} and newer do",
        f"set engine.tensorrt_llm_version to {DEFAULT}",
    )  # fmt: skip
