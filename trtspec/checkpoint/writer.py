"""Write a safetensors file from planned tensors: header first, then bytes moved by the kernel or in bounded blocks."""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trtspec.checkpoint.cast import cast
from trtspec.checkpoint.header import ITEM_BYTES, TensorInfo
from trtspec.checkpoint.tensors import BLOCK, read_blocks
from trtspec.errors import BuildError, ModelFileError

KERNEL_BLOCK = 256 << 20
"""Bytes asked of the kernel at once, so that progress is seen."""
NO_KERNEL_COPY = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}


@dataclass(frozen=True)
class Planned:
    """One tensor to write: its sources' elements one after the other, cast to `dtype` (a safetensors name)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sources: tuple[TensorInfo, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in the written file."""
        return sum(source.elements for source in self.sources) * ITEM_BYTES[self.dtype]


def header_bytes(plan: Sequence[Planned]) -> bytes:
    """Length and JSON header; padded so that the data starts at a multiple of 8 bytes."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in plan:
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write(path: Path, plan: Sequence[Planned], progress: Callable[[int, int], None] | None = None) -> int:
    """Create `path` (it must not exist), fsync it, return its size. On any failure the file is removed."""
    header = header_bytes(plan)
    total = len(header) + sum(tensor.nbytes for tensor in plan)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BuildError(f"cannot create the file: {error.strerror}", where=path) from None
    try:
        with open(fd, "wb", buffering=0) as file:
            done = _write_all(file.fileno(), header)
            for moved in (n for tensor in plan for n in _move(tensor, file.fileno())):
                done += moved
                if progress is not None:
                    progress(done, total)
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise BuildError(f"writing failed: {error.strerror}", where=path, fix="see that the disk has room") from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return total


def _move(tensor: Planned, fd: int) -> Iterable[int]:
    """Append the tensor to `fd`; yields the bytes of each piece."""
    for source in tensor.sources:
        if source.dtype == tensor.dtype:
            yield from _copy(source, fd)
        else:
            for block in read_blocks(source):
                yield _write_all(fd, cast(block, source.dtype, tensor.dtype, source.name))


def _copy(source: TensorInfo, fd: int) -> Iterable[int]:
    """Kernel copy: bytes never enter this process. Where a file system cannot, bounded blocks."""
    at, end = source.begin, source.begin + source.nbytes
    with source.path.open("rb") as file:
        while at < end:
            try:
                moved = os.copy_file_range(file.fileno(), fd, min(KERNEL_BLOCK, end - at), at)
            except OSError as error:
                if error.errno not in NO_KERNEL_COPY:
                    raise
                moved = _write_all(fd, os.pread(file.fileno(), min(BLOCK, end - at), at))
            if not moved:
                raise ModelFileError(f"ended inside tensor {source.name!r}; it changed meanwhile", where=source.path)
            at += moved
            yield moved


def _write_all(fd: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    return len(data)
