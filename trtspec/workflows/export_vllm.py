"""export vllm: a pair as vLLM's speculative configuration, and the command that serves it there.

Keys and versions: vLLM docs, features/speculative_decoding/draft_model (0.25 to latest) and features/spec_decode
(0.8.2 to 0.10); vllm/engine/arg_utils.py of pull request 25142, where draft models are refused; pull request 24322,
which brings them back. In which release that was is not known from the documents, so versions in between are refused.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from trtspec.config import ROLES, ModelSource, RunConfig
from trtspec.errors import ConfigError

DEFAULT = "0.25.0"
"""Oldest version whose own documentation shows a draft model with a `method`."""
FIRST, GONE, BACK = (0, 8, 2), (0, 10, 0), (0, 25, 0)
"""A `speculative_config` with a draft model is documented from FIRST, refused from GONE, documented again from BACK."""
WEIGHTS = ("none", "fp8")
"""Formats that vLLM makes itself when it loads a 16-bit model (`--quantization fp8`); others need a checkpoint."""


@dataclass(frozen=True)
class Export:
    """What vLLM is told. `notes`: what is not as in trtspec."""

    vllm: str
    speculative_config: dict[str, Any]
    command: tuple[str, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "vllm": self.vllm,
            "speculative_config": self.speculative_config,
            "command": list(self.command),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """The command as a shell script."""
        head = f"#!/bin/sh\n# Written by trtspec for vLLM {self.vllm}; it was not run.\n"
        return head + "".join(f"# {note}\n" for note in self.notes) + "exec " + shlex.join(self.command) + "\n"


def export_vllm(config: RunConfig, vllm: str = DEFAULT) -> Export:
    """ConfigError for a version without draft models, and for what vLLM cannot do."""
    number = _version(vllm)
    target, draft = config.pair.target, config.pair.draft
    _require(config)
    tensor = target.parallelism.tensor
    block: dict[str, Any] = {"model": _name(draft), "num_speculative_tokens": config.speculation.k}
    if number >= BACK:
        block["method"] = "draft_model"
    block["draft_tensor_parallel_size"] = draft.parallelism.tensor
    block["max_model_len"] = config.engine.max_seq_len
    if draft.revision is not None:
        block["revision"] = draft.revision
    if draft.quantization.weights == "fp8":
        block["quantization"] = "fp8"
    command = [
        "vllm", "serve", _name(target), *(("--revision", target.revision) if target.revision else ()),
        "--tensor-parallel-size", str(tensor),
        "--max-model-len", str(config.engine.max_seq_len), "--max-num-seqs", str(config.engine.max_batch_size),
        "--dtype", target.dtype, "--host", config.serving.host, "--port", str(config.serving.http_port or 8000),
        *(("--quantization", "fp8") if target.quantization.weights == "fp8" else ()),
        *(("--kv-cache-dtype", "fp8") if target.quantization.kv_cache == "fp8" else ()),
        "--speculative-config" if number >= GONE else "--speculative_config", json.dumps(block),
    ]  # fmt: skip
    return Export(vllm, block, tuple(command), tuple(_notes(config)))


def _version(text: str) -> tuple[int, int, int]:
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.\w+]*)", text)
    if match is None:
        raise ConfigError("not a vLLM version", where="--vllm", found=repr(text), expected=f"such as {DEFAULT}")
    number = (int(match[1]), int(match[2]), int(match[3] or 0))
    if number < FIRST:
        raise ConfigError(
            f"vLLM {text} has no speculative_config", where="--vllm", expected=f"0.8.2 - 0.9, or {DEFAULT} and newer"
        )
    if GONE <= number < BACK:
        raise ConfigError(
            f"vLLM {text} may refuse draft models: they were gone from 0.10 on, and came back in a release that is "
            "not known here", where="--vllm", expected=f"0.8.2 - 0.9, or {DEFAULT} and newer",
        )  # fmt: skip
    return number


def _require(config: RunConfig) -> None:
    target, draft = config.pair.target, config.pair.draft
    if config.speculation.acceptance_threshold is not None:
        raise ConfigError(
            "vLLM has no fixed acceptance threshold", where="speculation.acceptance_threshold", fix="remove it"
        )
    if draft.parallelism.tensor not in (1, target.parallelism.tensor):
        raise ConfigError(
            "vLLM runs the draft on one GPU or split like the target", where="pair.draft.parallelism.tensor",
            found=draft.parallelism.tensor, expected=f"1 or {target.parallelism.tensor}",
        )  # fmt: skip
    for role in ROLES:
        source = config.pair[role]
        if source.parallelism.pipeline > 1:
            raise ConfigError(
                "vLLM crashes with speculation and pipeline parallelism (vLLM issue 30436)",
                where=f"pair.{role}.parallelism.pipeline", found=source.parallelism.pipeline, expected="1",
            )  # fmt: skip
        if source.quantization.weights not in WEIGHTS or source.quantization.kv_cache == "int8":
            raise ConfigError(
                "vLLM does not make this format itself", where=f"pair.{role}.quantization",
                found=f"weights {source.quantization.weights}, kv_cache {source.quantization.kv_cache}",
                fix="make a checkpoint with `trtspec quantize --hf`, name its folder as `path`, and set weights: none",
            )  # fmt: skip


def _name(source: ModelSource) -> str:
    return str(source.path) if source.path is not None else str(source.hub)


def _notes(config: RunConfig) -> list[str]:
    """What a reader would otherwise find out later."""
    found = ["Every request drafts the same number of tokens; requests cannot choose."]
    if config.speculation.acceptance == "tokens" and config.validation.temperature > 0:
        found.append("Sampled requests are verified by rejection sampling here, not by comparing tokens.")
    if any(config.pair[role].quantization.weights == "fp8" for role in ROLES):
        found.append("FP8 weights are made when the model loads, without calibration; trtspec's are calibrated.")
    if config.pair.draft.quantization.kv_cache != config.pair.target.quantization.kv_cache:
        found.append("The draft gets the target's KV-cache type.")
    found.append("vLLM compares vocabulary sizes: a pair with equal tokens but padded heads (Qwen2.5) may be refused.")
    return found
