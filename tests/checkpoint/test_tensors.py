"""Model folders: one file, shards, and folders that lie about themselves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.checkpoint.models import save, write_model
from trtspec.checkpoint.tensors import INDEX, SINGLE, TensorSource, has_weights, read_blocks, same_bytes
from trtspec.errors import ModelFileError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def edit_index(folder: Path, tensor: str, file: object) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"][tensor] = file
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize("shards", [1, 2])
def test_all_tensors_and_their_bytes(tmp_path: Path, shards: int) -> None:
    written = write_model(tmp_path, shards=shards)
    source = TensorSource.open(tmp_path)
    assert has_weights(tmp_path)
    assert len(source.files) == shards
    assert {n: b"".join(read_blocks(t, 7)) for n, t in source.tensors.items()} == {
        n: t["data"] for n, t in written.items()
    }


def test_links_into_the_hub_cache_are_followed(tmp_path: Path) -> None:
    write_model(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / SINGLE).symlink_to(tmp_path / "blobs" / SINGLE)
    assert TensorSource.open(tmp_path / "snapshot").tensors


def test_absent_shard(tmp_path: Path) -> None:
    write_model(tmp_path, shards=2)
    (tmp_path / SECOND).unlink()
    with pytest.raises(ModelFileError, match=f"{SECOND}: a shard named by the index is absent"):
        TensorSource.open(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["../evil.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\b.safetensors", ".safetensors", 7, None,
     "a\0b.safetensors", "x" * 300 + ".safetensors", "model.bin"],
)  # fmt: skip
def test_names_cannot_escape_the_folder(tmp_path: Path, name: object) -> None:
    write_model(tmp_path, shards=2)
    edit_index(tmp_path, "model.norm.weight", name)
    with pytest.raises(ModelFileError, match=r"'model.norm.weight' is not in a plain .safetensors file"):
        TensorSource.open(tmp_path)


def test_index_and_headers_must_agree(tmp_path: Path) -> None:
    write_model(tmp_path, shards=2)
    index = json.loads((tmp_path / INDEX).read_text())
    (tmp_path / INDEX).write_text(json.dumps(index | {"weight_map": index["weight_map"] | {"ghost": FIRST}}))
    with pytest.raises(ModelFileError, match="'ghost' of the index is in no file"):
        TensorSource.open(tmp_path)
    del index["weight_map"]["model.norm.weight"]
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelFileError, match=r"'model.norm.weight' is in this file.*not in the index"):
        TensorSource.open(tmp_path)


def test_one_tensor_in_two_shards(tmp_path: Path) -> None:
    tensor = {"dtype": "F32", "shape": [1], "data": bytes(4)}
    save(tmp_path / FIRST, {"a": tensor})
    save(tmp_path / SECOND, {"a": tensor, "b": tensor})
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": FIRST, "b": SECOND}}))
    with pytest.raises(ModelFileError, match=f"'a' is also in {FIRST}"):
        TensorSource.open(tmp_path)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": "x"}'])
def test_index_without_a_map(tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(ModelFileError, match="has no weight_map"):
        TensorSource.open(tmp_path)


def test_both_a_single_file_and_shards(tmp_path: Path) -> None:
    write_model(tmp_path, shards=2)
    (tmp_path / SINGLE).write_bytes((tmp_path / FIRST).read_bytes())
    with pytest.raises(ModelFileError, match="holds both"):
        TensorSource.open(tmp_path)


def test_an_index_of_the_single_file(tmp_path: Path) -> None:
    tensors = write_model(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(tensors, SINGLE)}))
    assert set(TensorSource.open(tmp_path).tensors) == set(tensors)


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ModelFileError, match=r"pickled.*run any code.*safetensors"):
        TensorSource.open(tmp_path)


def test_no_weights(tmp_path: Path) -> None:
    assert not has_weights(tmp_path)
    with pytest.raises(ModelFileError, match="no weights"):
        TensorSource.open(tmp_path)


def test_same_bytes(tmp_path: Path) -> None:
    one = {"dtype": "F32", "shape": [2], "data": bytes(8)}
    other = one | {"data": bytes(7) + b"\1"}
    save(tmp_path / SINGLE, {"a": one, "b": dict(one), "c": other, "d": one | {"shape": [1, 2]}})
    t = TensorSource.open(tmp_path).tensors
    assert same_bytes(t["a"], t["b"])
    assert not same_bytes(t["a"], t["c"])
    assert not same_bytes(t["a"], t["d"])


def test_a_file_that_shrinks_while_read(tmp_path: Path) -> None:
    write_model(tmp_path)
    last = max(TensorSource.open(tmp_path).tensors.values(), key=lambda t: t.begin)
    os.truncate(tmp_path / SINGLE, last.begin + 1)
    with pytest.raises(ModelFileError, match="changed while being read"):
        list(read_blocks(last))
