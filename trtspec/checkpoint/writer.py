"""Write rank files from planned tensors: headers first, then bytes moved tensor by tensor, several at once.

The size of every tensor is known before its bytes are, so each is written at its own place through a descriptor of
its own. Tensors of several ranks that are cut from the same rows are written together, so that the rows are read once.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trtspec.checkpoint.pieces import PieceTensor, Writable, write_all, write_together
from trtspec.errors import BuildError

Progress = Callable[[int, int], None]


def header_bytes(tensors: Sequence[Writable]) -> bytes:
    """Length and JSON header; padded so that the data starts at a multiple of 8 bytes."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in tensors:
        entries[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_files(
    files: Mapping[Path, Sequence[Writable]],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    durable: bool = True,
) -> int:
    """Create the files (none may exist) and return their bytes; `durable` flushes them to the disk.

    BuildError when writing fails, what the tensors raise otherwise. On any failure every file is removed.
    """
    headers = {path: header_bytes(tensors) for path, tensors in files.items()}
    sizes = {path: len(headers[path]) + sum(t.nbytes for t in tensors) for path, tensors in files.items()}
    total = sum(sizes.values())
    made: list[Path] = []
    try:
        for path, header in headers.items():
            _create(path, header, sizes[path])
            made.append(path)
        moved = _Moved(sum(map(len, headers.values())), total, progress)
        _run(list(_tasks(files, headers)), moved, workers or min(len(files), os.cpu_count() or 1))
        if durable:
            for path in files:
                _sync(path)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise
    return total


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A fault of the system becomes a BuildError that names the file."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else path
        raise BuildError(f"writing failed: {error.strerror}", where=where, fix="see that the disk has room") from None


def _create(path: Path, header: bytes, size: int) -> None:
    with _naming(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, header)
            os.truncate(fd, size)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def _sync(path: Path) -> None:
    with _naming(path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@dataclass(frozen=True)
class _Task:
    """Tensors to write in one go, each with its file and the offset of its first byte."""

    targets: tuple[tuple[Writable, Path, int], ...]

    def run(self) -> Iterator[int]:
        """Yields the bytes of each portion."""
        with _naming(self.targets[0][1]), ExitStack() as stack:
            opened = [(tensor, _at(stack, path, offset)) for tensor, path, offset in self.targets]
            pieces = [(tensor, fd) for tensor, fd in opened if isinstance(tensor, PieceTensor)]
            if len(pieces) > 1:
                yield from write_together(pieces)
            else:
                yield from self._alone(*opened[0])

    def _alone(self, tensor: Writable, fd: int) -> Iterator[int]:
        done = 0
        for moved in tensor.write(fd):
            done += moved
            yield moved
        # More or less than promised would leave a neighbour overwritten or a hole.
        if done != tensor.nbytes:
            raise BuildError(f"tensor {tensor.name!r} wrote {done} bytes", expected=f"{tensor.nbytes}")


def _at(stack: ExitStack, path: Path, offset: int) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    os.lseek(fd, offset, os.SEEK_SET)
    return fd


def _tasks(files: Mapping[Path, Sequence[Writable]], headers: Mapping[Path, bytes]) -> Iterator[_Task]:
    together: dict[object, list[tuple[Writable, Path, int]]] = {}
    for path, tensors in files.items():
        at = len(headers[path])
        for tensor in tensors:
            shared = tensor.shared if isinstance(tensor, PieceTensor) else None
            key = (path, tensor.name) if shared is None else shared
            together.setdefault(key, []).append((tensor, path, at))
            at += tensor.nbytes
    for targets in together.values():
        yield _Task(tuple(targets))


class _Moved:
    """Bytes written so far, by all threads; tells them to stop when one has failed."""

    def __init__(self, done: int, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = done, total, progress
        self._lock = threading.Lock()
        self.stop = threading.Event()
        self.add(0)

    def add(self, nbytes: int) -> None:
        """Count and report. Reported under the lock: figures never go back."""
        with self._lock:
            self._done += nbytes
            if self._progress is not None:
                self._progress(self._done, self._total)


def _run(tasks: Sequence[_Task], moved: _Moved, workers: int) -> None:
    def work(task: _Task) -> None:
        for nbytes in task.run():
            if moved.stop.is_set():
                return
            moved.add(nbytes)

    with ThreadPoolExecutor(workers, thread_name_prefix="write") as pool:
        waiting = [pool.submit(work, task) for task in tasks]
        try:
            for done in as_completed(waiting):
                done.result()
        except BaseException:
            moved.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
