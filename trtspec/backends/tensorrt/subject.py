"""What `trtllm-build` sees of one model: formats, architecture, split, and the GPU that it runs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.formats import FORMATS, KV_ALGOS
from trtspec.config import Role, RunConfig
from trtspec.errors import ModelFileError
from trtspec.pairing.quantizing import FP8_ATTENTION, FP8_SM
from trtspec.versions import TrtLlm

FP8_ALGOS = tuple(FORMATS[name].quant_algo for name in FP8_ATTENTION)
"""Weights with which the builder keeps FP8 attention (builder.py)."""


@dataclass(frozen=True)
class Subject:
    """One engine to build. None is not known, and then no rule that needs it holds."""

    role: Role
    version: TrtLlm
    quant_algo: str | None = None
    kv_algo: str | None = None
    architecture: str | None = None
    dtype: str | None = None
    tensor: int = 1
    pipeline: int = 1
    sm: int | None = None
    """Compute capability × 10."""
    gpus: int | None = None
    """GPUs that the builder may use."""

    @property
    def ranks(self) -> int:
        """Engine files."""
        return self.tensor * self.pipeline

    @property
    def fp8(self) -> bool:
        """FP8 attention is legal: FP8 weights and an FP8 cache, on Ada or newer."""
        return self.quant_algo in FP8_ALGOS and self.kv_algo == "FP8" and (self.sm is None or self.sm >= FP8_SM)

    @property
    def is_target(self) -> bool:
        """The engine that verifies drafts."""
        return self.role == "target"


def planned(config: RunConfig, role: Role, version: TrtLlm, architecture: str | None = None) -> Subject:
    """The engine as configured, before there is a checkpoint; the GPU is `hardware.gpu`."""
    source = config.pair[role]
    return Subject(
        role=role,
        version=version,
        quant_algo=FORMATS[source.quantization.weights].quant_algo,
        kv_algo=KV_ALGOS[source.quantization.kv_cache],
        architecture=architecture,
        dtype=None if source.dtype == "auto" else source.dtype,
        tensor=source.parallelism.tensor,
        pipeline=source.parallelism.pipeline,
        sm=config.hardware.spec.sm,
        gpus=config.hardware.count if config.hardware.spec.is_gpu else None,
    )


def of_checkpoint(
    checkpoint: Path, role: Role, version: TrtLlm, *, sm: int | None = None, gpus: int | None = None
) -> Subject:
    """The engine of a TensorRT-LLM checkpoint folder. ModelFileError where its config.json cannot be used."""
    path = checkpoint / "config.json"
    document = read_object(path)
    mapping, quantization = _block(document, "mapping", path), _block(document, "quantization", path)
    return Subject(
        role=role,
        version=version,
        quant_algo=quantization.get("quant_algo"),
        kv_algo=quantization.get("kv_cache_quant_algo"),
        architecture=document.get("architecture"),
        dtype=document.get("dtype"),
        tensor=int(mapping.get("tp_size", 1)),
        pipeline=int(mapping.get("pp_size", 1)),
        sm=sm,
        gpus=gpus,
    )


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; ModelFileError for anything else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=path) from None
    except ValueError as error:
        raise ModelFileError(f"not JSON: {error}", where=path) from None
    if not isinstance(document, dict):
        raise ModelFileError("not a JSON object", where=path, found=type(document).__name__)
    return document


def _block(document: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = document.get(name) or {}
    if not isinstance(found, dict):
        raise ModelFileError(f"{name} is not an object", where=path, found=type(found).__name__)
    return found
