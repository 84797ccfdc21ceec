"""Build a reference engine: limits and arithmetic beside the checkpoint's weights. Does not import torch."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from trtspec import __version__
from trtspec.backends.reference.config import read_model_config
from trtspec.config import Role, RunConfig
from trtspec.errors import BuildError, ConfigError, MissingError, ModelFileError

FORMAT = 1
"""Raised when the same inputs would give another engine folder: part of the content key."""
TORCH = ((2, 6), (2, 14))
"""First version that works, first that is not known to."""
NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES}


class ReferenceBuilder:
    """The engine folder is TensorRT-LLM's: config.json (`pretrained_config`, `build_config`) and one file per rank."""

    name = "reference"

    def require(self, config: RunConfig) -> None:
        """Raises MissingError without a usable torch; ConfigError for what this backend cannot do."""
        _require_torch()
        for role in ("target", "draft"):
            source = config.pair[role]
            if source.quantization.weights != "none" or source.quantization.kv_cache != "auto":
                raise ConfigError(
                    "the reference backend runs unquantized models only",
                    where=f"pair.{role}.quantization",
                    fix="remove it, or choose another engine.backend",
                )
            if source.parallelism.world_size != 1:
                raise ConfigError(
                    "the reference backend runs on one rank",
                    where=f"pair.{role}.parallelism",
                    found=source.parallelism.world_size,
                    expected="1",
                )

    def key_facts(self, config: RunConfig, role: Role) -> dict[str, object]:
        """Limits, arithmetic, format."""
        return {
            "backend": self.name,
            "format": FORMAT,
            "build": _build_config(config, role),
            "reference": _reference(config),
        }

    def build(self, config: RunConfig, role: Role, checkpoint: Path, out: Path) -> None:
        """Write config.json and rank0.safetensors (a hard link to the checkpoint's; a copy across file systems)."""
        pretrained = checkpoint / "config.json"
        model = read_model_config(pretrained)
        if config.engine.max_seq_len > model.max_positions:
            raise ConfigError(
                f"the {role} does not know that many positions",
                where="engine.max_seq_len",
                found=config.engine.max_seq_len,
                expected=f"at most {model.max_positions}",
            )
        document = {
            "version": __version__,
            "pretrained_config": json.loads(pretrained.read_text(encoding="utf-8")),
            "build_config": _build_config(config, role),
            "reference": _reference(config),
        }
        _link(checkpoint / "rank0.safetensors", out / "rank0.safetensors")
        (out / "config.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _build_config(config: RunConfig, role: Role) -> dict[str, Any]:
    """The part of TensorRT-LLM's BuildConfig that has a meaning here.

    As there, a target's max_seq_len is recorded with the draft's room added. max_input_len spans the whole sequence,
    because each call of a stateless speculative loop sends everything so far as its input.
    """
    engine, drafts = config.engine, config.speculation.max_draft_len
    target = role == "target"
    max_seq_len = engine.max_seq_len + (drafts if target else 0)
    return {
        "max_batch_size": engine.max_batch_size,
        "max_input_len": max_seq_len - 1,
        "max_seq_len": max_seq_len,
        "max_beam_width": 1,
        "max_num_tokens": engine.max_batch_size * max(engine.max_seq_len, drafts + 1),
        "max_draft_len": drafts if target else 0,
        "speculative_decoding_mode": 2 if target else 1,
        "kv_cache_type": "CONTINUOUS",
        "gather_context_logits": False,
        "gather_generation_logits": True,
        "plugin_config": {"use_paged_context_fmha": True},
    }


def _reference(config: RunConfig) -> dict[str, Any]:
    dtype = config.engine.compute_dtype
    return {
        "compute_dtype": "bfloat16" if dtype == "auto" else dtype,
        "max_prompt_len": config.engine.max_input_len,
        # Twice the batch, so that conversations between two calls keep their cache while others run.
        "cache_slots": 2 * config.engine.max_batch_size,
        # One round's drafts and the target's own token may differ between two calls of one conversation.
        "draft_window": config.speculation.max_draft_len + 1,
    }


def _require_torch() -> None:
    fix = "install the `local` extra: pip install 'trtspec[local]', or '.[local]' from a clone"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise MissingError("the reference engine needs torch", found="no torch", fix=fix) from None
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not TORCH[0] <= numbers < TORCH[1]:
        raise MissingError(
            "the reference engine does not know this torch", found=version, expected=">=2.6,<2.14", fix=fix
        )


def _link(source: Path, to: Path) -> None:
    if not source.is_file():
        raise ModelFileError("no such file", where=source, expected="the checkpoint's weights")
    try:
        os.link(source, to)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise BuildError(f"cannot link the weights: {error.strerror}", where=to) from None
        shutil.copyfile(source, to)
