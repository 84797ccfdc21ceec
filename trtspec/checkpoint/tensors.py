"""The tensors of a model folder: one safetensors file, or shards named by an index. Raw byte ranges, no copies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtspec.checkpoint.header import ITEM_BYTES, TensorInfo, read_header
from trtspec.checkpoint.jsonfile import present, read_object
from trtspec.errors import ModelFileError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
BLOCK = 2 << 20
"""Bytes held at once when tensors are read."""

__all__ = ["BLOCK", "INDEX", "ITEM_BYTES", "SINGLE", "SafetensorsFile", "TensorInfo", "TensorSource", "has_weights"]


@dataclass(frozen=True)
class SafetensorsFile:
    """One .safetensors file whose header was read and found sound."""

    path: Path
    tensors: Mapping[str, TensorInfo]

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Read and check the header; ModelFileError when it is not sound."""
        return cls(path, read_header(path))


@dataclass(frozen=True)
class TensorSource:
    """Every tensor of a model folder by name, and the files that hold them."""

    folder: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, TensorInfo]

    @classmethod
    def open(cls, folder: Path) -> TensorSource:
        """Headers of all files of the folder. ModelFileError: none, absent shard, index and headers disagree."""
        single, index = folder / SINGLE, folder / INDEX
        if present(index) and present(single):
            return cls._only_index(folder, index)
        if present(index):
            return cls._indexed(folder, _weight_map(index), index)
        if present(single):
            return cls(folder, (single,), SafetensorsFile.open(single).tensors)
        raise _no_weights(folder)

    @classmethod
    def _only_index(cls, folder: Path, index: Path) -> TensorSource:
        weight_map = _weight_map(index)
        if set(weight_map.values()) != {SINGLE}:
            raise ModelFileError(
                f"holds both {SINGLE} and shards named by {INDEX}",
                where=folder,
                fix="remove the one that is not this model's",
            )
        return cls._indexed(folder, weight_map, index)

    @classmethod
    def _indexed(cls, folder: Path, weight_map: Mapping[str, str], index: Path) -> TensorSource:
        tensors: dict[str, TensorInfo] = {}
        files = tuple(folder / name for name in sorted(set(weight_map.values())))
        absent_file = next((path for path in files if not path.exists()), None)
        if absent_file is not None:
            raise ModelFileError(
                "a shard named by the index is absent", where=absent_file, fix="fetch the missing file"
            )
        for path in files:
            for name, tensor in SafetensorsFile.open(path).tensors.items():
                if name in tensors:
                    raise ModelFileError(f"tensor {name!r} is also in {tensors[name].path.name}", where=path)
                if weight_map.get(name) != path.name:
                    raise ModelFileError(
                        f"tensor {name!r} is in this file, but the index says otherwise",
                        where=path,
                        found=weight_map.get(name, "not in the index"),
                    )
                tensors[name] = tensor
        absent = next((name for name in weight_map if name not in tensors), None)
        if absent is not None:
            raise ModelFileError(f"tensor {absent!r} of the index is in no file", where=index)
        return cls(folder, files, tensors)


def has_weights(folder: Path) -> bool:
    """Whether the folder holds safetensors weights under the names transformers gives them, be they readable or not."""
    return present(folder / SINGLE) or present(folder / INDEX)


def read_blocks(tensor: TensorInfo, block: int = BLOCK) -> Iterator[bytes]:
    """The tensor's bytes in pieces of at most `block`. ModelFileError when the file ends early."""
    with tensor.path.open("rb") as file:
        for begin in range(tensor.begin, tensor.begin + tensor.nbytes, block):
            wanted = min(block, tensor.begin + tensor.nbytes - begin)
            data = os.pread(file.fileno(), wanted, begin)
            if len(data) != wanted:
                raise ModelFileError(
                    f"ended inside tensor {tensor.name!r}; it changed while being read", where=tensor.path
                )
            yield data


def same_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    """Whether two tensors have equal type, shape and bytes; reads both in bounded blocks."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(a == b for a, b in zip(read_blocks(one), read_blocks(other), strict=True))


def _weight_map(index: Path) -> dict[str, str]:
    data = read_object(index, limit=256 << 20)
    weight_map = data.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError("has no weight_map", where=index)
    for tensor, name in weight_map.items():
        _check_shard_name(tensor, name, index)
    return weight_map


def _check_shard_name(tensor: str, name: Any, index: Path) -> None:
    # Only plain names: a path could point outside the folder. The file may be a link, as the hub's cache makes them.
    plain = isinstance(name, str) and name.isprintable() and not set(name) & set("/\\") and len(name.encode()) < 256
    if not plain or name.startswith(".") or not name.endswith(".safetensors"):
        raise ModelFileError(
            f"tensor {tensor!r} is not in a plain .safetensors file of this folder", where=index, found=repr(name)[:80]
        )


def _no_weights(folder: Path) -> ModelFileError:
    pickled = sorted(p.name for p in folder.glob("*") if p.suffix in PICKLED)
    if pickled:
        return ModelFileError(
            "weights are pickled, and unpickling a file can run any code in it: not read",
            where=folder / pickled[0],
            fix="use a revision with safetensors, or write one with save_pretrained(safe_serialization=True) "
            "on a machine where running that code is safe",
        )
    return ModelFileError("no weights", where=folder, expected=f"{SINGLE}, or {INDEX} and its shards")
