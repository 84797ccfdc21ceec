"""What a scorer is, and which one a model folder needs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.request import Sampling
from trtspec.errors import ConfigError, MissingError, ModelFileError

Device = Literal["cpu", "cuda"]
ScoringEngine = Literal["reference", "transformers"]
S = TypeVar("S", bound="Scorer")
Ids = Sequence[int]
GREEDY = Sampling(top_k=1)
LONGEST = 4096
"""Tokens of prompt and answer where nothing is said; more costs cache that few prompts use."""


class Scorer(Protocol):
    """One loaded model. Used by one thread at a time; a context manager, or call `close`."""

    @property
    def vocab_size(self) -> int:
        """Rows of the output head, padding included: ids are below it."""

    @property
    def max_len(self) -> int:
        """Longest prompt with its answer in tokens."""

    @property
    def conditions(self) -> Mapping[str, str]:
        """What the numbers depend on: engine, dtype, device."""

    def generate(
        self,
        prompts: Sequence[Ids],
        max_tokens: int | Sequence[int],
        sampling: Sampling = GREEDY,
        seed: int | Sequence[int] = 0,
        end_ids: Collection[int] = (),
    ) -> list[list[int]]:
        """The continuation of every prompt, in order, without the end id: one that is shorter than asked has ended.

        `max_tokens` for all, or one for each. Prompt i draws with `seed` + i, or with seed i of several; each number
        is a pure function of seed and absolute position (`Sampling.seed` is not used). ConfigError for a prompt that
        is empty or too long.
        """

    def logits(self, ids: Ids, first: int) -> npt.NDArray[np.float32]:
        """[len(ids) - first, vocab]: row i is what the model expects after `ids[: first + i + 1]`."""

    def close(self) -> None:
        """Free the model and whatever was written for it; may be called twice."""

    def __enter__(self: S) -> S: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def is_checkpoint(folder: Path) -> bool:
    """Whether `folder` holds a TensorRT-LLM checkpoint (its config.json names one `architecture`)."""
    try:
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and isinstance(data.get("architecture"), str)


def engine_for(folder: Path, device: Device) -> ScoringEngine:
    """The reference engine on a CPU, transformers on a GPU; a checkpoint runs on the reference engine only."""
    if not folder.is_dir():
        raise ModelFileError("no such model folder", where=folder)
    if not is_checkpoint(folder):
        return "transformers" if device == "cuda" else "reference"
    if device == "cuda":
        raise ConfigError(
            "a TensorRT-LLM checkpoint is run by the reference engine, which computes on a CPU",
            where=folder,
            fix="choose the device cpu, or name the Hugging Face folder",
        )
    return "reference"


def asked(prompts: Sequence[Ids], max_tokens: int | Sequence[int], longest: int) -> list[int]:
    """`max_tokens` for each prompt. ConfigError, naming the first that does not fit."""
    each = [max_tokens] * len(prompts) if isinstance(max_tokens, int) else list(max_tokens)
    if len(each) != len(prompts):
        raise ValueError(f"{len(prompts)} prompts and {len(each)} max_tokens")
    for i, (ids, new) in enumerate(zip(prompts, each, strict=True)):
        if not ids or new < 1:
            raise ConfigError(f"prompt {i} has {len(ids)} tokens and asks for {new}", expected="at least one of each")
        if len(ids) + new > longest:
            raise ConfigError(
                f"prompt {i} with its answer is too long",
                found=f"{len(ids)} + {new} tokens",
                expected=f"at most {longest} together",
                fix="shorten it, ask for fewer tokens, or raise engine.max_seq_len",
            )
    return each


def seeds_of(seed: int | Sequence[int], count: int) -> list[int]:
    """One seed for each of `count` prompts."""
    return [seed + i for i in range(count)] if isinstance(seed, int) else list(seed)


def without_torch(what: str) -> MissingError:
    """The error of a machine that cannot run models."""
    fix = "install the `local` extra: pip install 'trtspec[local]', or '.[local]' from a clone"
    return MissingError(f"running models in process needs {what}", found=f"no {what}", fix=fix)
