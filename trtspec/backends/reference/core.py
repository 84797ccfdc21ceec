"""One model with its cache, its slots and its counters: what a worker thread steps. No threads in here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from trtspec.backends.reference.cache import KVCache
from trtspec.backends.reference.config import EngineConfig, EngineFolder, LinearKind
from trtspec.backends.reference.linear import available_linear
from trtspec.backends.reference.longrope import past
from trtspec.backends.reference.model import DTYPES, Feed, Model
from trtspec.backends.reference.slots import Slot, SlotPool


class Core:
    """Raises ModelFileError for a broken engine folder, MissingError when its cache does not fit in memory."""

    def __init__(self, engine_dir: Path, threads: int | None = None, linear: LinearKind | None = None) -> None:
        folder = EngineFolder.read(engine_dir)
        kind = available_linear(DTYPES[folder.compute_dtype]) if linear is None else linear
        if threads is None:
            # On a small model a second thread costs more in hand-over than it saves.
            threads = torch.get_num_threads() if folder.model.memory_bound else 1
        with torch.inference_mode():
            cache = KVCache(folder.model, folder.cache_slots, folder.max_seq_len)
            self.model = Model(folder.model, folder.path, folder.compute_dtype, kind, cache)
        self.config = EngineConfig(
            max_batch_size=folder.max_batch_size,
            max_input_len=folder.max_input_len,
            max_seq_len=folder.max_seq_len,
            max_prompt_len=folder.max_prompt_len,
            max_draft_len=folder.max_draft_len,
            vocab_size=folder.model.vocab_size,
            compute_dtype=folder.compute_dtype,
            linear_kind=kind,
            compiled=self.model.compiled,
            threads=threads,
            cache_slots=folder.cache_slots,
            draft_window=folder.draft_window,
        )
        self.pool = SlotPool(folder.cache_slots, folder.draft_window)
        self.prefilled = 0
        self.reused = 0
        self.batch_sizes: Counter[int] = Counter()

    @property
    def boundary(self) -> int | None:
        """Length beyond which sequences are turned by longrope's long set; None for other models."""
        return self.model.boundary

    def admit(self, ids: Sequence[int], reuse: bool = True) -> tuple[Slot, int] | None:
        """A slot for a sequence beginning with `ids`, and how many of them are cached in it; None when all are busy."""
        lease = self.pool.acquire(ids, past(self.boundary, len(ids)))
        if lease is None:
            return None
        if lease.copy_from is not None:
            self.model.cache.copy_prefix(lease.copy_from, lease.slot.number, lease.reused)
        cached = lease.reused if reuse else 0
        self.reused += cached
        self.prefilled += len(ids) - cached
        return lease.slot, cached

    def release(self, slot: Slot, ids: list[int]) -> None:
        """Give a slot back with the tokens that are cached in it."""
        self.pool.release(slot, ids)

    def step(self, feeds: Sequence[Feed]) -> npt.NDArray[np.float32]:
        """One forward pass; logits of the wanted tokens."""
        self.batch_sizes[len(feeds)] += 1
        long = () if self.boundary is None else [slot.number for slot in self.pool.slots if slot.long]
        return self.model.step(feeds, long)
