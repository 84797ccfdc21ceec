"""Findings about the engines to be built: flags that a version does not take, and what `trtllm-build` would change."""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.backends.tensorrt.commands import build_command
from trtspec.backends.tensorrt.flags import engine_flags
from trtspec.backends.tensorrt.gpus import side_by_side
from trtspec.backends.tensorrt.rewrites import Rewrite, predict
from trtspec.backends.tensorrt.subject import planned
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import ConfigError
from trtspec.pairing.findings import Finding, Severity
from trtspec.pairing.model import Model
from trtspec.versions import DEFAULT, TrtLlm, engine_version

QUIET = ("draft-room", "workers")
"""Changes that are part of every pair."""


def check_engines(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """For `engine.backend: tensorrt`; the version is the configured one, else the default."""
    if config.engine.backend != "tensorrt":
        return
    try:
        version = engine_version(config.engine.tensorrt_llm_version or DEFAULT)
    except ConfigError:
        return  # preflight.version has that
    models: dict[Role, Model] = {"target": target, "draft": draft}
    for role in ROLES[::-1]:
        yield from _flags(models[role], role, config, version)
    yield from _inputs(config)
    if config.hardware.spec.is_gpu:
        yield _turns(config)


def _flags(model: Model, role: Role, config: RunConfig, version: TrtLlm) -> Iterator[Finding]:
    architecture = model.facts.architecture if model.facts else None
    subject = planned(config, role, version, architecture)
    try:
        build_command(config, role, config.checkpoint_dir(role), config.engine_dir(role), version, subject=subject)
    except ConfigError as error:
        yield Finding("engine.flags", "error", role, f"{error.where}: {error.what}", error.fix)
        return
    for rewrite in predict(engine_flags(config, subject), subject).rewrites:
        if rewrite.refused:
            yield from _refused(rewrite, role, config)
        elif rewrite.rule.name not in QUIET:
            yield Finding("engine.rewritten", _severity(rewrite, config), role, f"trtllm-build {version}: {rewrite}")


def _refused(rewrite: Rewrite, role: Role, config: RunConfig) -> Iterator[Finding]:
    """Only what the preflight of the formats has not said: it needs a GPU to speak of."""
    said = rewrite.rule.code is not None and config.hardware.spec.is_gpu
    if not said or (rewrite.rule.strict and role == "draft"):
        yield Finding("engine.refused", "error", role, str(rewrite), rewrite.rule.fix)


def _severity(rewrite: Rewrite, config: RunConfig) -> Severity:
    return "warning" if rewrite.flag in config.engine.tensorrt.flags or rewrite.rule.breaks == "target" else "info"


def _inputs(config: RunConfig) -> Iterator[Finding]:
    if config.max_num_tokens < config.engine.max_seq_len:
        yield Finding(
            "engine.input", "warning", "pair",
            f"steps of {config.max_num_tokens:,} tokens take no longer input unless it is chunked, and verify calls "
            f"send up to {config.engine.max_seq_len:,} tokens",
            f"set engine.max_num_tokens to {config.engine.max_seq_len} or more, or turn chunked context on",
        )  # fmt: skip


def _turns(config: RunConfig) -> Finding:
    together = side_by_side(config, config.hardware.count)
    how = "side by side" if together else "one after the other: there are fewer GPUs than ranks of both"
    return Finding("engine.turns", "info", "pair", f"both engines are built {how}")
