"""The `speculative_config` block of the LLM API, in the spelling that each TensorRT-LLM version takes.

Names come from the version table (trtspec/versions). Here are the two things that are no names: what a draft-length
schedule means, and since when `max_concurrency` is taken. Unknown fields are refused by the LLM API from 1.0 on
(its models forbid extras), so nothing is written on the chance that it is understood.
"""

from __future__ import annotations

from trtspec.config.llmapi import PyTorch
from trtspec.errors import ConfigError
from trtspec.versions import Spelling, TrtLlm, parse

MAX_CONCURRENCY = parse("1.1.0")
"""llm_args.py of 1.0 has no such field; the trees after it do."""
LOWER_BOUNDS = parse("1.3.0rc3")
"""Last version known to read a schedule as *from this batch size on* (llm_args.py of 1.3.0rc3)."""
UPPER_BOUNDS = parse("1.4.0rc1")
"""From here on *up to this batch size* (docs/source/features/speculative-decoding.md of 1.4.0rc4)."""


def speculative_config(version: TrtLlm, draft: str, draft_len: int, settings: PyTorch) -> dict[str, object]:
    """The block. ConfigError, naming the key, for a setting that this version has no field for."""
    spelling = spelling_of(version)
    found: dict[str, object] = {
        "decoding_type": spelling.decoding_type,
        "max_draft_len": draft_len,
        spelling.draft_model: draft,
    }
    if settings.max_concurrency is not None:
        if version.number < MAX_CONCURRENCY:
            raise _lacks(version, "max_concurrency", "leave it out, or use TensorRT-LLM 1.1 or newer")
        found["max_concurrency"] = settings.max_concurrency
    if settings.draft_len_schedule is not None:
        found |= _schedule(version, spelling, settings.draft_len_schedule, draft_len)
    return found | _window(version, spelling, settings)


def spelling_of(version: TrtLlm) -> Spelling:
    """ConfigError where the LLM API does not speculate with a draft model."""
    if version.llmapi is None:
        raise ConfigError(
            f"the LLM API of TensorRT-LLM {version} does not speculate with a draft model", expected="1.0.0 or newer"
        )
    return version.llmapi


def _schedule(version: TrtLlm, spelling: Spelling, given: dict[int, int], draft_len: int) -> dict[str, object]:
    """Ours says *from*; what is written says what the version reads."""
    key = "draft_len_schedule"
    if spelling.schedule is None:
        raise _lacks(version, key, "use engine.pytorch.max_concurrency, or TensorRT-LLM 1.2 or newer")
    steps = sorted(given.items())
    if steps[0][1] != draft_len:
        raise ConfigError(
            "a schedule begins with the draft length that is served", where=f"engine.pytorch.{key}",
            found=f"1: {steps[0][1]}", expected=f"1: {draft_len} (speculation.draft_len)",
        )  # fmt: skip
    if max(length for _, length in steps) > draft_len:
        raise ConfigError("a schedule never exceeds speculation.draft_len", where=f"engine.pytorch.{key}", found=given)
    if version.number <= LOWER_BOUNDS:
        return {spelling.schedule: dict(steps)}
    if version.number < UPPER_BOUNDS:
        raise ConfigError(
            f"whether TensorRT-LLM {version} reads a schedule's batch sizes as lower or as upper bounds is not known",
            where=f"engine.pytorch.{key}",
            fix="use engine.pytorch.max_concurrency, TensorRT-LLM 1.2.1, or 1.4.0rc1 and newer",
        )
    ends = [start - 1 for start, _ in steps[1:]]
    if steps[-1][1]:
        raise ConfigError(
            f"TensorRT-LLM {version} ends every schedule: above its largest batch size nothing is drafted",
            where=f"engine.pytorch.{key}", found=f"{steps[-1][0]}: {steps[-1][1]} as the last step",
            fix=f"add a last step of 0, such as {steps[-1][0] * 2}: 0",
        )  # fmt: skip
    return {spelling.schedule: {end: length for end, (_, length) in zip(ends, steps, strict=False)}}


def _window(version: TrtLlm, spelling: Spelling, settings: PyTorch) -> dict[str, object]:
    if settings.acceptance_window is None:
        return {}
    if spelling.window is None or spelling.threshold is None:
        raise _lacks(version, "acceptance_window", "leave it out, or use TensorRT-LLM 1.2.1")
    rates = spelling.threshold.endswith("rate_threshold")
    key = "acceptance_rate_threshold" if rates else "acceptance_length_threshold"
    threshold = getattr(settings, key)
    if threshold is None:
        other = "acceptance_length_threshold" if rates else "acceptance_rate_threshold"
        raise _lacks(version, other, f"set engine.pytorch.{key}: {spelling.threshold_unit}")
    return {spelling.window: settings.acceptance_window, spelling.threshold: threshold}


def _lacks(version: TrtLlm, key: str, fix: str) -> ConfigError:
    return ConfigError(
        f"the LLM API of TensorRT-LLM {version} has no such setting", where=f"engine.pytorch.{key}", fix=fix
    )
