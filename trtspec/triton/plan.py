"""What a model repository is made from: limits, ids and folders, gathered once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.jsonfile import Keys, read_object
from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import MissingError, ModelFileError

GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class RepositoryPlan:
    """One pair's repository. Lengths are in tokens and what the configuration promises, without draft room."""

    name: str
    backend: Literal["reference", "tensorrt"]
    engine_dirs: Mapping[Role, Path]
    """Absolute; written into the repository."""
    tokenizer_dir: Path
    """The target's model folder; its tokenizer files are copied."""
    final_dir: Path
    """Where the repository will live."""
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    max_draft_len: int
    draft_len: int
    """Draft tokens per round where nothing else is said."""
    vocab_size: int
    end_ids: tuple[int, ...]
    """The first is the one that upstream's single `end_id` carries."""
    pad_id: int
    acceptance: Literal["tokens", "logits"] = "tokens"
    acceptance_threshold: float | None = None
    logits_dtype: Literal["FP32", "FP16"] = "FP32"
    threads: int | None = None
    """Torch threads of each reference engine; None leaves the choice to the engine."""


def plan_for(config: RunConfig, target: Path) -> RepositoryPlan:
    """The plan of `config` with the target's model folder. MissingError, ModelFileError."""
    backend = config.engine.backend
    if backend == "pytorch":
        raise MissingError(
            "this version writes no repository for the pytorch backend",
            where="engine.backend",
            fix="choose reference, or tensorrt with TensorRT-LLM 0.20 - 1.2.1",
        )
    if not (target / TOKENIZER).is_file():
        raise ModelFileError("no such file", where=target / TOKENIZER, expected="the target's fast tokenizer")
    facts = ModelFacts.read(target)
    end_ids, pad_id = special_ids(target, facts)
    return RepositoryPlan(
        name=config.name,
        backend=backend,
        engine_dirs={role: config.engine_dir(role).absolute() for role in ROLES},
        tokenizer_dir=target,
        final_dir=config.repository_dir.absolute(),
        max_batch_size=config.engine.max_batch_size,
        max_input_len=config.engine.max_input_len,
        max_seq_len=config.engine.max_seq_len,
        max_draft_len=config.speculation.max_draft_len,
        draft_len=config.speculation.k,
        vocab_size=facts.vocab_size,
        end_ids=end_ids,
        pad_id=pad_id,
        acceptance=config.speculation.acceptance,
        acceptance_threshold=config.speculation.acceptance_threshold,
    )


def special_ids(folder: Path, facts: ModelFacts) -> tuple[tuple[int, ...], int]:
    """End ids (generation_config.json speaks before config.json) and the pad id (else the first end id, else 0)."""
    path = folder / GENERATION_CONFIG
    generation = Keys(read_object(path) if path.is_file() else {}, path)
    model = Keys(read_object(folder / "config.json"), folder / "config.json")
    end_ids = generation.ids("eos_token_id") or facts.eos_ids
    pads = generation.ids("pad_token_id") or model.ids("pad_token_id") or end_ids or (0,)
    for name, ids in (("eos_token_id", end_ids), ("pad_token_id", pads[:1])):
        bad = [i for i in ids if i >= facts.vocab_size]
        if bad:
            raise ModelFileError(
                f"{name} is outside the vocabulary", where=folder, found=bad[0], expected=f"below {facts.vocab_size}"
            )
    return end_ids, pads[0]
