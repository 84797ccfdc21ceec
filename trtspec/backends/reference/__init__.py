"""The reference backend: TensorRT-LLM checkpoints on a CPU. Importing this package does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.backends.reference.request import EngineStats, Request, Result, Sampling, Ticket, Update

if TYPE_CHECKING:
    from trtspec.backends.reference.engine import ReferenceEngine

__all__ = ["EngineStats", "Request", "Result", "Sampling", "Ticket", "Update", "open_engine"]


def open_engine(engine_dir: str | Path, *, threads: int | None = None) -> ReferenceEngine:
    """Load an engine folder (config.json, rank0.safetensors). `threads`: torch threads, unset = torch's default."""
    from trtspec.backends.reference.engine import open_engine as load

    return load(engine_dir, threads=threads)
