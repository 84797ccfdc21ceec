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
            quantized = _quantized(config, role)
            if quantized and config.engine.compute_dtype == "bfloat16":
                raise _bfloat16(f"pair.{role}.quantization", quantized)

    def key_facts(self, config: RunConfig, role: Role) -> dict[str, object]:
        """Limits, arithmetic, format."""
        return {
            "backend": self.name,
            "format": FORMAT,
            "build": _build_config(config, role),
            "reference": _reference(config, bool(_quantized(config, role))),
        }

    def build(self, config: RunConfig, role: Role, checkpoint: Path, out: Path) -> None:
        """Write config.json and a file per rank (hard links to the checkpoint's; copies across file systems).

        Ranks stay apart on disk and are merged when the engine is opened, as quantized weights are dequantized then.
        """
        pretrained = checkpoint / "config.json"
        model = read_model_config(pretrained)
        if config.engine.max_seq_len > model.max_positions:
            raise ConfigError(
                f"the {role} does not know that many positions",
                where="engine.max_seq_len",
                found=config.engine.max_seq_len,
                expected=f"at most {model.max_positions}",
            )
        if model.emulated and config.engine.compute_dtype == "bfloat16":
            raise _bfloat16(pretrained, model.quant_algo or f"{model.cache_algo} cache")
        files = [checkpoint / f"rank{rank}.safetensors" for rank in range(model.ranks)]
        _check_files(files)
        document = {
            "version": __version__,
            "pretrained_config": json.loads(pretrained.read_text(encoding="utf-8")),
            "build_config": _build_config(config, role),
            "reference": _reference(config, model.emulated),
        }
        for file in files:
            _link(file, out / file.name)
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


def _reference(config: RunConfig, emulated: bool) -> dict[str, Any]:
    """`emulated`: the checkpoint is quantized; then `auto` is float32, which holds its rounded values exactly."""
    dtype = config.engine.compute_dtype
    automatic = "float32" if emulated else "bfloat16"
    return {
        "compute_dtype": automatic if dtype == "auto" else dtype,
        "max_prompt_len": config.engine.max_input_len,
        # Twice the batch, so that conversations between two calls keep their cache while others run.
        "cache_slots": 2 * config.engine.max_batch_size,
        # One round's drafts and the target's own token may differ between two calls of one conversation.
        "draft_window": config.speculation.max_draft_len + 1,
    }


def _quantized(config: RunConfig, role: Role) -> str:
    """What the role's checkpoint will be quantized to, in the configuration's words; empty for nothing."""
    wanted = config.pair[role].quantization
    named = {"weights": (wanted.weights, "none"), "kv_cache": (wanted.kv_cache, "auto")}
    return ", ".join(f"{key} {value}" for key, (value, off) in named.items() if value != off)


def _bfloat16(where: str | Path, found: str) -> ConfigError:
    return ConfigError(
        "quantized models are emulated in float32",
        where=where,
        found=f"{found} with engine.compute_dtype bfloat16",
        fix="set engine.compute_dtype to auto or float32",
    )


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


def _check_files(files: list[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise ModelFileError("no such file", where=file, expected="the checkpoint's weights")


def _link(source: Path, to: Path) -> None:
    try:
        os.link(source, to)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise BuildError(f"cannot link the weights: {error.strerror}", where=to) from None
        shutil.copyfile(source, to)
