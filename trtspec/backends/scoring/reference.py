"""A model on the reference engine: answers through its worker in batches, logits by one forward pass."""

from __future__ import annotations

import importlib.util
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.builder import ReferenceBuilder
from trtspec.backends.reference.config import COMPUTE_DTYPES, read_model_config
from trtspec.backends.reference.request import Request, Sampling, Update
from trtspec.backends.scoring.base import GREEDY, LONGEST, Ids, asked, is_checkpoint, seeds_of, without_torch
from trtspec.config import ModelSource, Role, RunConfig
from trtspec.config.schema import Engine, Pair
from trtspec.errors import ConfigError, EvidenceError, ModelFileError

PIECE = 256
"""Tokens of one forward pass; a longer text is fed in pieces, whose masks stay small."""


class ReferenceScorer:
    """`folder`: a TensorRT-LLM checkpoint, or a Hugging Face folder, which is converted into a temporary one.

    Arguments and errors as :func:`trtspec.backends.scoring.open_scorer`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dtype: str = "auto",
        max_len: int | None = None,
        batch: int = 8,
        role: Role = "target",
    ) -> None:
        compute = "float32" if dtype == "auto" else dtype
        if compute not in COMPUTE_DTYPES:
            raise ConfigError(
                "the reference engine does not compute in this type", found=dtype, expected="float32, bfloat16"
            )
        if importlib.util.find_spec("torch") is None:
            raise without_torch("torch")
        self._scratch = tempfile.TemporaryDirectory(prefix="trtspec-scoring-")
        try:
            self._open(folder, compute, max_len, batch, role)
        except BaseException:
            self._scratch.cleanup()
            raise

    def _open(self, folder: Path, dtype: str, max_len: int | None, batch: int, role: Role) -> None:
        from trtspec.backends.reference.core import Core
        from trtspec.backends.reference.engine import ReferenceEngine

        scratch = Path(self._scratch.name)
        checkpoint = folder if is_checkpoint(folder) else _converted(folder, scratch / "checkpoint")
        positions = read_model_config(checkpoint / "config.json").max_positions
        self._max_len = min(positions, max_len or LONGEST)
        engine = scratch / "engine"
        engine.mkdir()
        ReferenceBuilder().build(_limits(checkpoint, dtype, self._max_len, batch), "draft", checkpoint, engine)
        self._core = Core(engine)
        self._engine = ReferenceEngine(self._core)
        self._role = role

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return self._core.config.vocab_size

    @property
    def max_len(self) -> int:
        """Longest prompt with its answer in tokens."""
        return self._max_len

    @property
    def conditions(self) -> Mapping[str, str]:
        """Engine, dtype, device."""
        return {"engine": "reference", "dtype": self._core.config.compute_dtype, "device": "cpu"}

    def generate(
        self,
        prompts: Sequence[Ids],
        max_tokens: int | Sequence[int],
        sampling: Sampling = GREEDY,
        seed: int | Sequence[int] = 0,
        end_ids: Collection[int] = (),
    ) -> list[list[int]]:
        """See :class:`Scorer`."""
        each, seeds = asked(prompts, max_tokens, self.max_len), seeds_of(seed, len(prompts))
        answers: list[list[int]] = [[] for _ in prompts]
        faults: list[str] = []
        done = threading.Semaphore(0)

        def collector(i: int) -> Callable[[Update], None]:
            def collect(update: Update) -> None:
                answers[i] += update.new_ids
                if update.finished:
                    if update.error is not None:
                        faults.append(update.error)
                    done.release()

            return collect

        for i, (ids, new) in enumerate(zip(prompts, each, strict=True)):
            how = replace(sampling, seed=None if sampling.greedy else seeds[i])
            request = Request(str(i), tuple(ids), new, how, frozenset(end_ids))
            try:
                self._engine.submit(request, collector(i))
            except ValueError as error:
                raise ConfigError(f"prompt {i} of the {self._role}: {error}") from None
        for _ in prompts:
            done.acquire()
        if faults:
            raise EvidenceError(f"the {self._role} failed while it answered: {faults[0]}")
        return answers

    def logits(self, ids: Ids, first: int) -> npt.NDArray[np.float32]:
        """See :class:`Scorer`."""
        import torch

        from trtspec.backends.reference.model import Feed

        if not 0 <= first < len(ids) <= self.max_len:
            raise ValueError(f"logits from {first} of {len(ids)} tokens; the model takes {self.max_len}")
        rows = []
        with torch.inference_mode():
            lease = self._core.admit(ids)
            if lease is None:
                raise RuntimeError("logits were asked for while answers are written")
            slot, at = lease[0], min(lease[1], first)
            while at < len(ids):
                until = min(at + PIECE, len(ids))
                wanted = max(0, until - max(at, first))
                rows.append(self._core.step([Feed(slot.number, at, list(ids[at:until]), wanted)]))
                at = until
        self._core.release(slot, list(ids))
        return np.concatenate(rows)

    def close(self) -> None:
        """Stop the engine and remove the temporary checkpoint."""
        self._engine.close()
        self._scratch.cleanup()

    def __enter__(self) -> ReferenceScorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _converted(folder: Path, out: Path) -> Path:
    from trtspec.checkpoint.convert import convert

    if not folder.is_dir():
        raise ModelFileError("no such model folder", where=folder)
    out.mkdir()
    convert(folder, out)
    return out


def _limits(checkpoint: Path, dtype: str, max_len: int, batch: int) -> RunConfig:
    """The configuration of an engine that takes texts of up to `max_len` tokens, `batch` at a time."""
    if max_len < 2:
        raise ConfigError("no room for a prompt and an answer", found=f"{max_len} tokens")
    model = ModelSource(path=checkpoint)
    engine = Engine.model_validate(
        {"compute_dtype": dtype, "max_batch_size": batch, "max_input_len": max_len - 1, "max_seq_len": max_len}
    )
    return RunConfig(name="scoring", pair=Pair(target=model, draft=model), engine=engine)
