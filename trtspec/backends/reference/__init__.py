"""The reference backend: TensorRT-LLM checkpoints on a CPU. Importing this package does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.backends.reference.config import EngineConfig, LinearKind
from trtspec.backends.reference.request import EngineStats, Request, Result, Sampling, Ticket, Update

if TYPE_CHECKING:
    from trtspec.backends.reference.engine import ReferenceEngine
    from trtspec.backends.reference.speculation import Acceptance, SpeculativePair

__all__ = [
    "EngineConfig",
    "EngineStats",
    "Request",
    "Result",
    "Sampling",
    "Ticket",
    "Update",
    "open_engine",
    "open_pair",
]


def open_engine(
    engine_dir: str | Path, *, threads: int | None = None, linear: LinearKind | None = None
) -> ReferenceEngine:
    """Load an engine folder (config.json, rank0.safetensors).

    `threads`: torch threads; unset = 1 for a small model, else torch's default. `linear`: how weights are multiplied;
    unset = the fastest kind this machine has; `engine.config.linear_kind` tells which.
    """
    from trtspec.backends.reference.core import Core
    from trtspec.backends.reference.engine import ReferenceEngine

    return ReferenceEngine(Core(Path(engine_dir), threads, linear))


def open_pair(
    target_dir: str | Path,
    draft_dir: str | Path,
    *,
    draft_len: int,
    acceptance: Acceptance = "tokens",
    threads: int | None = None,
    linear: LinearKind | None = None,
) -> SpeculativePair:
    """Load two engine folders into one speculative pair that drafts up to `draft_len` tokens a round.

    `acceptance` as in :class:`SpeculativePair`; the rest as in :func:`open_engine`.
    """
    from trtspec.backends.reference.core import Core
    from trtspec.backends.reference.speculation import SpeculativePair

    target = Core(Path(target_dir), threads, linear)
    draft = Core(Path(draft_dir), threads, linear)
    return SpeculativePair(target, draft, draft_len, acceptance)
