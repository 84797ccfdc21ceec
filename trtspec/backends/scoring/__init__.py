"""Scoring: a model in this process that writes answers and tells its logits. Importing this does not import torch.

Two ways to run one: the reference engine on a TensorRT-LLM checkpoint (or a Hugging Face folder, converted on the
fly), and transformers for what only it runs, or for a GPU. Both are judged by the same sampling arithmetic.
"""

from __future__ import annotations

from pathlib import Path

from trtspec.backends.scoring.base import Device, Scorer, ScoringEngine, engine_for, is_checkpoint
from trtspec.config import Role

__all__ = ["Device", "Scorer", "ScoringEngine", "engine_for", "is_checkpoint", "open_scorer"]


def open_scorer(
    folder: Path,
    *,
    device: Device = "cpu",
    engine: ScoringEngine | None = None,
    dtype: str = "auto",
    max_len: int | None = None,
    batch: int = 8,
    role: Role = "target",
) -> Scorer:
    """Open the model in `folder`: a TensorRT-LLM checkpoint or a Hugging Face folder with safetensors weights.

    `engine` as :func:`engine_for` chooses it where unset. `dtype`: `float32`, `bfloat16` or (transformers) `float16`;
    `auto` is float32 on a CPU and the weights' own type on a GPU. `max_len`: longest prompt with its answer in tokens;
    unset, 4096 or what the model knows if that is less. `batch`: answers written at a time. `role` is for messages.

    Raises MissingError without torch, transformers or the GPU; ModelFileError for a model that cannot be run;
    ConfigError for a dtype or length it does not have.
    """
    if (engine or engine_for(folder, device)) == "reference":
        from trtspec.backends.scoring.reference import ReferenceScorer

        return ReferenceScorer(folder, dtype=dtype, max_len=max_len, batch=batch, role=role)
    from trtspec.backends.scoring.huggingface import TransformersScorer

    return TransformersScorer(folder, device=device, dtype=dtype, max_len=max_len, batch=batch, role=role)
