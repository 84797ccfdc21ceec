"""Find NaN and infinite weights by their bits, in bounded memory, before a byte is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from trtspec.checkpoint.header import TensorInfo
from trtspec.checkpoint.pieces import Piece, read_range

EXPONENTS = {"BF16": ("<u2", 0x7F80), "F16": ("<u2", 0x7C00), "F32": ("<u4", 0x7F80_0000)}
"""Type → how to see its bits, and the exponent: all ones for NaN and infinity, and for nothing else."""


def nonfinite(sources: Iterable[TensorInfo], workers: int | None = None) -> Mapping[str, int]:
    """Names of the tensors that hold NaN or infinity, with how many values of them. Reads every byte once."""
    tensors = [source for source in sources if source.dtype in EXPONENTS]
    with ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="scan") as pool:
        counts = pool.map(_count, tensors)
        return {tensor.name: count for tensor, count in zip(tensors, counts, strict=True) if count}


def _count(source: TensorInfo) -> int:
    view, exponent = EXPONENTS[source.dtype]
    # Without the sign bit, whatever is not below the exponent has all of its bits set.
    kind = np.dtype(view).type
    limit, magnitude = kind(exponent), kind(np.iinfo(kind).max >> 1)
    piece = Piece(source, (0, source.elements), (0, 1), 1)
    scratch = np.empty(0, view)
    found = 0
    for block in read_range(piece):
        bits = np.frombuffer(block, view)
        if scratch.size < bits.size:
            scratch = np.empty(bits.size, view)
        low = np.bitwise_and(bits, magnitude, out=scratch[: bits.size])
        if low.max(initial=0) >= limit:
            found += int(np.count_nonzero(low >= limit))
    return found
