"""Tensors that are computed while a rank file is written: codes of weights in blocks, and small scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trtspec.checkpoint.codecs import Codes, Floats, decode, encode_e4m3
from trtspec.checkpoint.header import ITEM_BYTES
from trtspec.checkpoint.pieces import Piece, write_all
from trtspec.checkpoint.quantize.blocks import codes_of, rows_of

Encoder = Callable[[Floats, int], Codes]
"""(float32 rows [n, K], index of the first within its tensor) → codes of those rows."""


@dataclass(frozen=True)
class Coded:
    """The codes of a weight: its pieces' rows through `encoder`, block by block; a `pieces.Writable`.

    `encoder` is made by `prepare` when the first byte is wanted: scales are not looked for while planning.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    prepare: Callable[[], Encoder]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def write(self, fd: int) -> Iterator[int]:
        """See :class:`trtspec.checkpoint.pieces.Writable`."""
        encoder, row = self.prepare(), 0
        for block in rows_of(self.pieces):
            yield write_all(fd, np.ascontiguousarray(encoder(block, row)).data.cast("B"))
            row += len(block)


@dataclass(frozen=True)
class Fp8Coded:
    """E4M3 codes with one scale for all pieces, or one for each group of `each` pieces (experts).

    A 16-bit weight has 65536 possible values, so its code is looked up.
    """

    name: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    scales: Callable[[], Floats]
    each: int
    dtype: str = "F8_E4M3"

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape)

    def write(self, fd: int) -> Iterator[int]:
        """See :class:`trtspec.checkpoint.pieces.Writable`."""
        scales = self.scales().reshape(-1)
        table, made_for = None, -1
        for i, piece in enumerate(self.pieces):
            scale, kind = scales[i // self.each], piece.source.dtype
            if kind in ("BF16", "F16") and made_for != i // self.each:
                table, made_for = _table(kind, scale), i // self.each
            for codes in codes_of(piece):
                found = encode_e4m3(decode(codes, kind) / scale) if table is None else table[codes.view(np.uint16)]
                yield write_all(fd, np.ascontiguousarray(found).data.cast("B"))


def _table(kind: str, scale: np.float32) -> Codes:
    every = np.arange(65536, dtype=np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        return encode_e4m3(decode(every.view(np.float16) if kind == "F16" else every, kind) / scale)


def constant(name: str, value: np.float32) -> Computed:
    """A float32 tensor of one element, shape [1]."""
    return Computed(name, "F32", (1,), lambda: np.array([value], np.float32))


@dataclass(frozen=True)
class Computed:
    """A small tensor held in memory when it is written: a scale or a vector; a `pieces.Writable`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], Codes]
    """Codes of `dtype` and `shape`."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def write(self, fd: int) -> Iterator[int]:
        """See :class:`trtspec.checkpoint.pieces.Writable`."""
        found = np.ascontiguousarray(self.values()).reshape(self.shape)
        yield write_all(fd, found.tobytes())
