"""The header reader against files made to deceive it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.checkpoint.models import save
from trtspec.checkpoint.header import read_header
from trtspec.errors import ModelFileError


def entry(begin: int, end: int, dtype: str = "F32", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def raw(header: object, data: bytes = bytes(16)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_a_sound_file(tmp_path: Path) -> None:
    save(tmp_path / "f", {"a": {"dtype": "F32", "shape": [2, 3], "data": bytes(range(24))}})
    (tensor,) = read_header(tmp_path / "f").values()
    assert (tensor.name, tensor.dtype, tensor.shape, tensor.nbytes, tensor.elements) == ("a", "F32", (2, 3), 24, 6)
    assert (tmp_path / "f").read_bytes()[tensor.begin :][: tensor.nbytes] == bytes(range(24))


def test_scalars_and_empty_tensors(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(raw({"s": entry(0, 4, shape=[]), "e": entry(4, 4, shape=[0, 7])}, bytes(4)))
    assert {n: t.shape for n, t in read_header(tmp_path / "f").items()} == {"s": (), "e": (0, 7)}


BAD: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", "no room for a header length"),
    "seven bytes": (bytes(7), "no room for a header length"),
    "one gigabyte": (struct.pack("<Q", 1 << 30) + bytes(64), "impossible header length.*1073741824"),
    "all ones": (b"\xff" * 8 + b"{}", "impossible header length"),
    "header cut short": (raw({"a": entry(0, 16)})[:30], "impossible header length"),
    "not a dict": (raw([1, 2]), "not a JSON object"),
    "not utf-8": (raw(b'{"\xff": 1}'), "not UTF-8"),
    "not json": (raw(b"{"), "not valid JSON"),
    "pickle": (b"\x80\x04\x95" + bytes(40), "not valid JSON|impossible header"),
    "deep": (raw(b'{"a":' + b"[" * 100_000), "nested too deeply"),
    "twice": (raw(b'{"a": {"x": 1}, "a": {"x": 1}}'), "'a' is given 2 times"),
    "past the end": (raw({"a": entry(0, 20)}), "'a' lies past the end of the file"),
    "truncated data": (raw({"a": entry(0, 16)}, bytes(15)), "'a' lies past the end of the file"),
    "negative": (raw({"a": entry(-4, 12)}), "malformed data_offsets"),
    "reversed": (raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}), "malformed data_offsets"),
    "three offsets": (raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16, 16]}}), "malformed data_offs"),
    "float offset": (raw({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0.0, 16]}}), "malformed data_offsets"),
    "wrong length": (raw({"a": entry(0, 16, shape=[5])}), r"'a' of type F32 and shape \[5\] has the wrong length"),
    "overflowing shape": (raw({"a": entry(0, 16, shape=[1 << 62, 1 << 62])}), "wrong length"),
    "negative shape": (raw({"a": entry(0, 16, shape=[-2, -2])}), "malformed shape"),
    "string shape": (raw({"a": entry(0, 16) | {"shape": "4"}}), "malformed shape"),
    "bool shape": (raw({"a": entry(0, 4, shape=[True])}, bytes(4)), "malformed shape"),
    "unknown type": (raw({"a": entry(0, 16, dtype="F31")}), "unknown type.*F31"),
    "type is a list": (raw({"a": entry(0, 16) | {"dtype": ["F32"]}}), "unknown type"),
    "entry is a list": (raw({"a": [0, 16]}), "malformed header entry"),
    "extra key": (raw({"a": entry(0, 16) | {"x": 1}}), "malformed header entry"),
    "overlap": (raw({"a": entry(0, 12), "b": entry(8, 16)}), "'b' overlaps 'a'"),
    "same range": (raw({"a": entry(0, 16), "b": entry(0, 16)}), "overlaps"),
    "hole": (raw({"a": entry(0, 4), "b": entry(8, 16)}), "'b' leaves a hole after 'a'"),
    "hole in front": (raw({"a": entry(4, 16)}), "leaves a hole after the header"),
    "data left over": (raw({"a": entry(0, 12)}), "4 bytes after the last tensor"),
    "metadata": (raw({"__metadata__": {"a": 1}, "a": entry(0, 16)}), "__metadata__"),
    "metadata null": (raw({"__metadata__": None, "a": entry(0, 16)}), "__metadata__"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD.keys())
def test_unsound_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ModelFileError, match=message):
        read_header(tmp_path / "f")


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        read_header(tmp_path / "absent")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_header(tmp_path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), cut=st.integers(0, 400))
def test_damage_is_an_error_or_what_the_library_reads(tmp_path: Path, flips: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(raw({"a": entry(0, 8), "b": entry(8, 16, "F16", [2, 2]), "__metadata__": {"format": "pt"}}))
    for at, value in flips:
        data[at % len(data)] = value
    damaged = bytes(data[: cut or None])
    (tmp_path / "f").write_bytes(damaged)
    try:
        ours = read_header(tmp_path / "f")
    except ModelFileError:
        return
    theirs = {name: (t["dtype"], tuple(t["shape"])) for name, t in safetensors.deserialize(damaged)}
    assert {name: (t.dtype, t.shape) for name, t in ours.items()} == theirs
