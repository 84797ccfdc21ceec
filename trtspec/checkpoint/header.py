"""Read the header of a .safetensors file, trusting nothing in it.

Format (github.com/huggingface/safetensors, "Format"): 8 bytes little-endian header length N, N bytes of JSON
{name: {"dtype", "shape", "data_offsets": [begin, end)}}, then the data; offsets count from the end of the header,
and the tensors cover the data without holes or overlaps.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.jsonfile import parse_object
from trtspec.errors import ModelFileError

HEADER_LIMIT = 100_000_000
"""Bytes a header may have: the limit of the safetensors library."""
ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Bytes of one element of each type the format knows (whole-byte types)."""
AGAIN = "the file is damaged or not a safetensors file: fetch or write it again"


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: where its bytes lie (`begin` counts from the start of the file) and what they mean."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    begin: int
    nbytes: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Every tensor of the file by name, bounds checked. ModelFileError names the file and the tensor."""
    raw, start, size = _raw_header(path)
    entries = parse_object(raw, path)
    _check_metadata(entries.pop("__metadata__", {}), path)
    tensors = {name: _tensor(name, entry, path, start, size) for name, entry in entries.items()}
    _check_cover(list(tensors.values()), path, start, size)
    return tensors


def _raw_header(path: Path) -> tuple[bytes, int, int]:
    """The header's bytes, where the data starts, and the size of the file."""
    try:
        if path.exists() and not path.is_file():
            raise ModelFileError("not a regular file", where=path)
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise ModelFileError(
                    "truncated: no room for a header length", where=path, found=f"{size} bytes", fix=AGAIN
                )
            (length,) = struct.unpack("<Q", prefix)
            if length > HEADER_LIMIT or length > size - 8:
                most = min(HEADER_LIMIT, size - 8)
                raise ModelFileError(
                    "impossible header length", where=path, found=length, expected=f"at most {most}", fix=AGAIN
                )
            return file.read(length), 8 + length, size
    except FileNotFoundError:
        raise ModelFileError("no such file", where=path) from None
    except OSError as error:
        raise ModelFileError(f"cannot be read: {error.strerror}", where=path) from None


def _check_metadata(metadata: Any, path: Path) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ModelFileError("__metadata__ is not a map of strings", where=path, fix=AGAIN)


def _tensor(name: str, entry: Any, path: Path, start: int, size: int) -> TensorInfo:
    def wrong(what: str, found: object = None, expected: str | None = None) -> ModelFileError:
        return ModelFileError(f"tensor {name!r} {what}", where=path, found=found, expected=expected, fix=AGAIN)

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise wrong("has a malformed header entry", expected="dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise wrong("has an unknown type", found=repr(dtype)[:80])
    if not _counts(shape):
        raise wrong("has a malformed shape", found=repr(shape)[:80])
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong("has malformed data_offsets", found=repr(offsets)[:80])
    begin, end = offsets
    if start + end > size:
        raise wrong("lies past the end of the file", f"byte {start + end}", f"at most {size}")
    if end - begin != math.prod(shape) * ITEM_BYTES[dtype]:
        raise wrong(f"of type {dtype} and shape {shape} has the wrong length", f"{end - begin} bytes")
    return TensorInfo(name, dtype, tuple(shape), path, start + begin, end - begin)


def _counts(value: Any) -> bool:
    # 64 dimensions is more than any library has, and bounds the product below.
    return isinstance(value, list) and len(value) <= 64 and all(type(i) is int and 0 <= i < 1 << 63 for i in value)


def _check_cover(tensors: list[TensorInfo], path: Path, start: int, size: int) -> None:
    at, before = start, "the header"
    for tensor in sorted(tensors, key=lambda t: (t.begin, t.begin + t.nbytes)):
        if tensor.begin != at:
            how = "overlaps" if tensor.begin < at else "leaves a hole after"
            raise ModelFileError(f"tensor {tensor.name!r} {how} {before}", where=path, fix=AGAIN)
        at, before = tensor.begin + tensor.nbytes, repr(tensor.name)
    if at != size:
        raise ModelFileError(f"{size - at} bytes after the last tensor belong to none", where=path, fix=AGAIN)
