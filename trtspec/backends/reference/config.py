"""What an engine folder says about its model and its limits. Nothing here imports torch.

Keys follow TensorRT-LLM's engine config.json: `pretrained_config` is the checkpoint's config, `build_config` the
limits; `reference` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trtspec.backends.reference.keys import Keys
from trtspec.backends.reference.modelconfig import ModelConfig, model_config, read_model_config
from trtspec.errors import ModelFileError

__all__ = ["COMPUTE_DTYPES", "ComputeDtype", "EngineConfig", "EngineFolder", "LinearKind", "ModelConfig",
           "model_config", "read_model_config"]  # fmt: skip

LinearKind = Literal["mkldnn-prepacked", "torch-linear"]
ComputeDtype = Literal["float32", "bfloat16"]
COMPUTE_DTYPES: tuple[ComputeDtype, ...] = ("float32", "bfloat16")


@dataclass(frozen=True)
class EngineConfig:
    """Limits and arithmetic of an open engine. Lengths are in tokens and already include a target's draft room."""

    max_batch_size: int
    max_input_len: int
    """prompt + draft tokens of a request"""
    max_seq_len: int
    """prompt + draft tokens + new tokens of a request"""
    max_prompt_len: int
    """what the configuration promised for a user's prompt; the engine itself takes max_input_len"""
    max_draft_len: int
    """0: the engine takes no draft tokens"""
    vocab_size: int
    compute_dtype: ComputeDtype
    linear_kind: LinearKind
    """`mkldnn-prepacked`: oneDNN weights packed once; `torch-linear`: F.linear"""
    compiled: bool
    """The step is TorchScript; False: plain Python, the same results at about half the speed on small models."""
    threads: int
    cache_slots: int
    """Sequences whose keys and values are kept; those beyond max_batch_size wait for their next request."""
    draft_window: int
    """Tokens a conversation may lose at its end and still count as the same one."""


@dataclass(frozen=True)
class EngineFolder:
    """An engine folder's config.json, checked. Raises ModelFileError with the key that is wrong."""

    path: Path
    model: ModelConfig
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    max_prompt_len: int
    max_draft_len: int
    compute_dtype: ComputeDtype
    cache_slots: int
    draft_window: int

    @classmethod
    def read(cls, path: Path) -> EngineFolder:
        """Read `path`/config.json."""
        file = path / "config.json"
        root = Keys.read(file)
        build, ours = root.block("build_config"), root.block("reference")
        batch = build.integer("max_batch_size")
        dtype = ours.text("compute_dtype")
        if dtype not in COMPUTE_DTYPES:
            raise ModelFileError(
                "unknown reference.compute_dtype", where=file, found=dtype, expected=" or ".join(COMPUTE_DTYPES)
            )
        return cls(
            path=path,
            model=model_config(root.block("pretrained_config")),
            max_batch_size=batch,
            max_input_len=build.integer("max_input_len"),
            max_seq_len=build.integer("max_seq_len"),
            max_prompt_len=ours.integer("max_prompt_len", default=build.integer("max_input_len")),
            max_draft_len=build.integer("max_draft_len", low=0),
            compute_dtype=dtype,
            cache_slots=max(batch, ours.integer("cache_slots", default=2 * batch)),
            draft_window=ours.integer("draft_window", default=build.integer("max_draft_len", low=0) + 1),
        )
