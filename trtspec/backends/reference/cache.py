"""The static key/value cache: [layer][keys or values, slot, kv head, position, head size], float32.

A sequence's position is an integer kept by its owner; moving back means writing at a smaller one. Memory is
reserved, not touched: the system backs only the pages that sequences reach. Layers with a sliding window keep all
positions too; the window is in their mask.
"""

from __future__ import annotations

import numpy as np
import torch

from trtspec.backends.reference.attention import LEAST_KEYS
from trtspec.backends.reference.config import ModelConfig
from trtspec.errors import MissingError


class KVCache:
    """Room for `slots` sequences of `length` tokens."""

    def __init__(self, config: ModelConfig, slots: int, length: int) -> None:
        length += LEAST_KEYS  # attention may cover so many positions beyond the last one, masked
        self.slots, self.length = slots, length
        heads, size = config.kv_heads, config.head_size
        shape = (2, slots, heads, length, size)
        try:
            # numpy asks the system for zeroed pages, which cost nothing until they are used; torch would write them.
            self.layers = [torch.from_numpy(np.zeros(shape, np.float32)) for _ in range(config.layers)]
        except MemoryError as error:
            gib = config.layers * 2 * slots * heads * length * size * 4 / 2**30
            raise MissingError(
                "not enough memory for the key/value cache",
                found=f"{gib:.1f} GiB for {slots} slots of {length} tokens ({error})",
                fix="lower engine.max_batch_size or engine.max_seq_len",
            ) from None
        kinds = torch.arange(2)[:, None] * slots * heads
        self.head_rows = ((kinds + torch.arange(heads)) * length).view(1, -1)
        """[1, 2 · kv heads] what to add to a token's first row for its keys, then its values, of every head."""
        self._rows_per_slot = heads * length

    def first_row(self, slot: int) -> int:
        """Row of position 0 of a slot's first key head, where a row is one head's keys or values of one position."""
        return slot * self._rows_per_slot

    def copy_prefix(self, source: int, to: int, length: int) -> None:
        """Give slot `to` the first `length` tokens of slot `source`."""
        for layer in self.layers:
            layer[:, to, :, :length] = layer[:, source, :, :length]
