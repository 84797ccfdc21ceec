"""Rotary position embedding: the table of rotations, and the order of rows that it expects.

**dynamic** beyond the trained length: each token is turned by the frequencies of the sequence that ends with it, and
its key stays so in the cache. That is what TensorRT-LLM's and transformers' cached decoding do token by token; both
turn a prompt that is longer than that by the frequencies of its whole length, which here would make a token's logits
depend on how its prompt was cut into calls.

**longrope**: a sequence longer than the original length is turned by the long set, all of it: when a sequence grows
past that length, its cache is computed anew (:mod:`trtspec.backends.reference.longrope`), as transformers' `generate`
does. TensorRT-LLM decides once, by the prompt's length, and goes on with the short set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.frequencies import Frequencies, Rope, dynamic_set
from trtspec.backends.reference.modelconfig import ModelConfig


def inverse_frequencies(config: ModelConfig, where: Path) -> Frequencies:
    """[rotary_dim / 2] radians per position; of longrope those of short sequences."""
    return Rope.of(config, where).sets()[0][0]


def rotations(config: ModelConfig, positions: int, where: Path, local: bool = False) -> npt.NDArray[np.complex64]:
    """[positions, head_size / 2] rotations times head_size**-0.25; for longrope [2 · positions, ..], short then long.

    Queries and keys both carry that factor, so that their product comes out divided by sqrt(head_size), or by
    sqrt(query_scalar) where the model has one. Elements beyond rotary_dim are not turned.
    """
    rope = Rope.of(config, where, local)
    sets, factor = rope.sets()
    tables = [np.outer(np.arange(positions, dtype=np.float32), one) for one in sets]
    if rope.kind == "dynamic":
        for position in range(rope.trained, positions):
            tables[0][position] = np.float32(position) * dynamic_set(rope, position + 1)
    angles = np.concatenate(tables)
    scale = (config.query_scalar or config.head_size) ** -0.25
    turned = np.full((len(angles), config.head_size // 2), scale, np.complex64)
    turned[:, : angles.shape[1]] = (np.cos(angles) + 1j * np.sin(angles)) * np.float32(scale * factor)
    return turned


def interleave(heads: int, head_size: int, rotary_dim: int | None = None) -> npt.NDArray[np.int64]:
    """Row order that turns the half-rotation layout [0, R/2, ...] into neighbouring (real, imaginary) pairs.

    R is `rotary_dim` (None: the head's size); what stands behind it stays in place.
    """
    turned = rotary_dim or head_size
    pairs = np.arange(turned).reshape(2, turned // 2).T.reshape(-1)
    one = np.concatenate((pairs, np.arange(turned, head_size)))
    order: npt.NDArray[np.int64] = (np.arange(heads)[:, None] * head_size + one).reshape(-1)
    return order
