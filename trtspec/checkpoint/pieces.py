"""A planned tensor as pieces of source tensors, and how their bytes are moved without holding them.

A piece is a block of rows and columns of a source tensor seen as a matrix. Whole rows of the same type are one byte
range and are copied by the kernel; everything else goes through buffers of a fixed size.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from trtspec.checkpoint.cast import Buffer, cast
from trtspec.checkpoint.header import ITEM_BYTES, TensorInfo
from trtspec.errors import ModelFileError

BLOCK = 1 << 20
"""Bytes read at once; small enough to stay in a core's cache between reading and writing."""
KERNEL_BLOCK = 64 << 20
"""Bytes asked of the kernel at once, so that progress is seen."""
NO_KERNEL_COPY = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}


class Writable(Protocol):
    """What a rank file can hold: a tensor whose size is known before its bytes are."""

    @property
    def name(self) -> str:
        """Name in the file."""

    @property
    def dtype(self) -> str:
        """safetensors type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in the file."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""

    def write(self, fd: int) -> Iterator[int]:
        """Append exactly `nbytes` bytes to `fd`; yields the bytes of each portion as it is written."""


@dataclass(frozen=True)
class Piece:
    """Rows [begin, end) and columns [begin, end) of a source tensor seen as a matrix `width` columns wide."""

    source: TensorInfo
    rows: tuple[int, int]
    columns: tuple[int, int]
    width: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])

    @property
    def contiguous(self) -> bool:
        """Whether the piece is one range of bytes."""
        return self.columns == (0, self.width) or self.rows[1] - self.rows[0] <= 1

    def range(self) -> tuple[int, int]:
        """Byte range [begin, end) in the source's file that spans the rows: all of a contiguous piece."""
        item = ITEM_BYTES[self.source.dtype]
        begin, end = (self.source.begin + row * self.width * item for row in self.rows)
        if self.contiguous and self.columns != (0, self.width):
            return begin + self.columns[0] * item, begin + self.columns[1] * item
        return begin, end


@dataclass(frozen=True)
class Zeros:
    """Elements that are zero: rows that pad a vocabulary."""

    elements: int


@dataclass(frozen=True)
class PieceTensor:
    """One tensor to write: its pieces' elements one after the other, cast to `dtype`; a `Writable`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece | Zeros, ...]
    plus_one: bool = False
    rule: str = ""
    """Name of the same tensor in the whole model: layers counted from the first, whatever the rank."""

    @cached_property
    def nbytes(self) -> int:
        """Bytes in the written file."""
        return sum(piece.elements for piece in self.pieces) * ITEM_BYTES[self.dtype]

    @cached_property
    def shared(self) -> tuple[tuple[str, int, tuple[int, int]], ...] | None:
        """Equal for tensors that are cut from the same rows, which can then be read once; None for byte ranges."""
        found = []
        for piece in self.pieces:
            if isinstance(piece, Zeros) or piece.contiguous:
                return None
            found.append((str(piece.source.path), piece.source.begin, piece.rows))
        return tuple(found)

    def write(self, fd: int) -> Iterator[int]:
        """Append to `fd`; yields the bytes of each portion. ModelFileError when a source ended early."""
        for piece in self.pieces:
            if isinstance(piece, Zeros):
                yield from _write_zeros(piece.elements * ITEM_BYTES[self.dtype], fd)
            elif not piece.contiguous:
                yield from _cut([(self, piece, fd)])
            elif piece.source.dtype == self.dtype and not self.plus_one:
                yield from _copy(piece, fd)
            else:
                for block in read_range(piece):
                    yield write_all(fd, self.stored(block, piece.source))

    def stored(self, data: Buffer, source: TensorInfo) -> Buffer:
        """Source elements as this tensor stores them."""
        return cast(data, source.dtype, self.dtype, source.name, plus_one=self.plus_one)


def write_together(tensors: Sequence[tuple[PieceTensor, int]]) -> Iterator[int]:
    """Append tensors of equal `shared` to their own descriptors, reading every source row once."""
    for cut in zip(*(tensor.pieces for tensor, _ in tensors), strict=True):
        targets = [
            (tensor, piece, fd) for (tensor, fd), piece in zip(tensors, cut, strict=True) if isinstance(piece, Piece)
        ]
        yield from _cut(targets)


def _cut(targets: Sequence[tuple[PieceTensor, Piece, int]]) -> Iterator[int]:
    """Column pieces of the same rows: read a block of rows, write each target's columns of it."""
    first = targets[0][1]
    item = ITEM_BYTES[first.source.dtype]
    row = first.width * item
    for block in read_range(first, max(1, BLOCK // row) * row):
        matrix = np.frombuffer(block, np.uint8).reshape(-1, row)
        done = 0
        for tensor, piece, fd in targets:
            begin, end = (column * item for column in piece.columns)
            part = np.ascontiguousarray(matrix[:, begin:end])
            done += write_all(fd, tensor.stored(part.data.cast("B"), piece.source))
        yield done


def read_range(piece: Piece, block: int = BLOCK) -> Iterator[memoryview]:
    """The bytes that span the piece's rows, in one buffer that is used again for each portion."""
    begin, end = piece.range()
    buffer = memoryview(bytearray(min(block, end - begin)))
    with piece.source.path.open("rb", buffering=0) as file:
        for at in range(begin, end, block):
            part = buffer[: min(block, end - at)]
            if os.preadv(file.fileno(), [part], at) != len(part):
                raise _ended(piece.source)
            yield part


def _copy(piece: Piece, fd: int) -> Iterator[int]:
    """Kernel copy: bytes never enter this process. Where a file system cannot, bounded blocks."""
    source = piece.source
    at, end = piece.range()
    with source.path.open("rb", buffering=0) as file:
        while at < end:
            try:
                moved = os.copy_file_range(file.fileno(), fd, min(KERNEL_BLOCK, end - at), at)
            except OSError as error:
                if error.errno not in NO_KERNEL_COPY:
                    raise
                moved = write_all(fd, os.pread(file.fileno(), min(BLOCK, end - at), at))
            if not moved:
                raise _ended(source)
            at += moved
            yield moved


def _ended(source: TensorInfo) -> ModelFileError:
    return ModelFileError(f"ended inside tensor {source.name!r}; it changed meanwhile", where=source.path)


def _write_zeros(nbytes: int, fd: int) -> Iterator[int]:
    for at in range(0, nbytes, BLOCK):
        yield write_all(fd, bytes(min(BLOCK, nbytes - at)))


def write_all(fd: int, data: Buffer) -> int:
    """Write everything, however little each call takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return len(data)
