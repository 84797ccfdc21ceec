"""The weights of a planned tensor as float32 rows, in bounded blocks, and their largest magnitudes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from trtspec.checkpoint.codecs import VIEWS, Codes, Floats, decode
from trtspec.checkpoint.header import ITEM_BYTES
from trtspec.checkpoint.pieces import Piece, read_range

BLOCK = 1 << 20
"""Source bytes that are held at once."""
T = TypeVar("T")


def codes_of(piece: Piece, rows: int = 2) -> Iterator[Codes]:
    """The piece's rows as stored, [n, columns], in blocks whose n is a multiple of `rows` but for the last.

    A block is valid until the next one is asked for.
    """
    row = piece.width * ITEM_BYTES[piece.source.dtype]
    step = max(1, BLOCK // (row * rows)) * rows
    begin, end = piece.columns
    # Whole rows are read even where columns are wanted: a seek for each row costs more than the bytes.
    wide = replace(piece, columns=(0, piece.width))
    for block in read_range(wide, step * row):
        yield np.frombuffer(block, VIEWS[piece.source.dtype]).reshape(-1, piece.width)[:, begin:end]


def rows_of(pieces: Sequence[Piece], rows: int = 2) -> Iterator[Floats]:
    """All pieces' rows one after the other, as float32."""
    for piece in pieces:
        for codes in codes_of(piece, rows):
            yield decode(codes, piece.source.dtype)


def full_width(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The same rows with all their columns."""
    return tuple(replace(piece, columns=(0, piece.width)) for piece in pieces)


def amax(pieces: Sequence[Piece], prepare: Callable[[Floats], Floats] | None = None) -> np.float32:
    """Largest magnitude of all elements; `prepare` sees the float32 rows first. NaN where there is one."""
    found = np.float32(0.0)
    for piece in pieces:
        for codes in codes_of(piece):
            if prepare is None and piece.source.dtype == "BF16":
                # Magnitudes of bfloat16 are ordered as their bits without the sign.
                top = decode((codes & np.uint16(0x7FFF)).max(keepdims=True), "BF16").reshape(())[()]
            else:
                values = decode(codes, piece.source.dtype)
                top = np.abs(values if prepare is None else prepare(values)).max()
            found = np.maximum(found, np.float32(top))
    return found


def row_amax(pieces: Sequence[Piece], prepare: Callable[[Floats], Floats] | None = None) -> Floats:
    """Largest magnitude of each row; float32 [rows]."""
    found = [np.abs(block if prepare is None else prepare(block)).max(axis=1) for block in rows_of(pieces)]
    return np.asarray(np.concatenate(found), np.float32)


class Once:
    """Results that several ranks and threads need, each computed once by whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[object, threading.Lock] = {}
        self._found: dict[object, Any] = {}

    def get(self, key: object, compute: Callable[[], T]) -> T:
        """The result of `compute` for `key`."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._found:
                self._found[key] = compute()
        result: T = self._found[key]
        return result
