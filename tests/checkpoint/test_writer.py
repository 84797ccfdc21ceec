"""The writer's seam: any tensor whose size is known can be written, several files at once, or none at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.madefamilies import write_family
from tests.checkpoint.merged import ranks
from tests.checkpoint.models import load
from trtspec.checkpoint.convert import convert, write_checkpoint
from trtspec.checkpoint.pieces import PieceTensor, write_all
from trtspec.checkpoint.plan import plan_conversion
from trtspec.checkpoint.writer import header_bytes, write_files
from trtspec.errors import BuildError, ModelFileError


@dataclass
class Computed:
    """A tensor that is computed while it is written."""

    name: str
    data: bytes
    promised: int | None = None
    error: BaseException | None = None
    dtype: str = "U8"

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.nbytes,)

    @property
    def nbytes(self) -> int:
        return len(self.data) if self.promised is None else self.promised

    def write(self, fd: int) -> Iterator[int]:
        for at in range(0, len(self.data), 3):
            yield write_all(fd, self.data[at : at + 3])
        if self.error is not None:
            raise self.error


def test_computed_tensors_beside_copied_ones(tmp_path: Path) -> None:
    write_family(tmp_path / "m", "llama")
    rank = plan_conversion(tmp_path / "m").ranks[0]
    tensors = (Computed("a", b"scales"), *rank.tensors, Computed("b", b"codes..."))
    size = write_files({tmp_path / "x.safetensors": tensors}, workers=3)
    found = load(tmp_path / "x.safetensors")
    assert (bytes(found["a"]["data"]), bytes(found["b"]["data"])) == (b"scales", b"codes...")
    assert len(found) == len(tensors)
    assert size == (tmp_path / "x.safetensors").stat().st_size


@pytest.mark.parametrize("promised", [2, 20])
def test_a_tensor_that_breaks_its_promise(tmp_path: Path, promised: int) -> None:
    with pytest.raises(BuildError, match=rf"'a' wrote 6 bytes \(expected {promised}"):
        write_files({tmp_path / "x.safetensors": [Computed("a", b"scales", promised)]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [ModelFileError("source"), KeyboardInterrupt(), OSError(28, "No space left on device")]
)
def test_one_failure_removes_every_file(tmp_path: Path, error: BaseException) -> None:
    files = {
        tmp_path / "0.safetensors": [Computed("a", b"x" * 100)],
        tmp_path / "1.safetensors": [Computed("b", b"y" * 100, error=error)],
    }
    expected = BuildError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write_files(files, workers=2)
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "1.safetensors").write_bytes(b"mine")
    with pytest.raises(BuildError, match="File exists"):
        write_files({tmp_path / f"{i}.safetensors": [Computed("a", b"x")] for i in range(2)})
    assert [p.name for p in tmp_path.iterdir()] == ["1.safetensors"]
    assert (tmp_path / "1.safetensors").read_bytes() == b"mine"


def test_progress_never_goes_back_and_ends_at_the_total(tmp_path: Path) -> None:
    write_family(tmp_path / "m", "llama")
    (tmp_path / "out").mkdir()
    seen: list[tuple[int, int]] = []
    result = convert(tmp_path / "m", tmp_path / "out", tensor=4, workers=4, progress=lambda *pair: seen.append(pair))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {result.bytes_written}
    assert seen[-1][0] == result.bytes_written == sum(p.stat().st_size for p in (tmp_path / "out").glob("rank*"))


def test_ranks_are_written_at_once(tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=30)

    class Meets(Computed):
        def write(self, fd: int) -> Iterator[int]:
            meeting.wait()
            yield from super().write(fd)

    write_files({tmp_path / f"{i}.safetensors": [Meets("a", b"x")] for i in range(2)}, workers=2)


def test_rows_that_ranks_share_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_family(tmp_path / "m", "llama")
    plan = plan_conversion(tmp_path / "m", tensor=8)
    (tmp_path / "out").mkdir()
    read: list[int] = []
    original = os.preadv

    def counting(fd: int, buffers: list[memoryview], offset: int) -> int:
        read.append(sum(len(b) for b in buffers))
        return original(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", counting)
    write_checkpoint(plan, tmp_path / "out")
    cut = [rule for rule in plan.rules if rule.parts[0].split == "columns"]
    assert sum(read) == sum(4 * int(np.prod(part.shape)) for rule in cut for part in rule.parts)


def test_small_blocks_and_odd_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trtspec.checkpoint import pieces

    write_family(tmp_path / "m", "mixtral")
    folders = []
    for block in (1, 100, 1 << 20):
        monkeypatch.setattr(pieces, "BLOCK", block)
        folders.append(tmp_path / f"out{block}")
        folders[-1].mkdir()
        convert(tmp_path / "m", folders[-1], tensor=2, dtype="bfloat16")
    first, *others = [ranks(folder) for folder in folders]
    for other in others:
        assert all(np.array_equal(a[name], b[name]) for a, b in zip(first, other, strict=True) for name in a)


def test_header_is_padded_and_covers_the_data() -> None:
    raw = header_bytes([Computed("a", b"x" * 5), Computed("b", b"y")])
    assert len(raw) % 8 == 0


def test_tensors_know_the_models_own_layer(tmp_path: Path) -> None:
    write_family(tmp_path, "llama")
    last = plan_conversion(tmp_path, pipeline=3).ranks[2]
    tensor = next(t for t in last.tensors if t.name == "transformer.layers.0.mlp.fc.weight")
    assert isinstance(tensor, PieceTensor)
    assert tensor.rule == "transformer.layers.2.mlp.fc.weight"
    assert (last.layers, last.file) == (range(2, 3), "rank2.safetensors")
