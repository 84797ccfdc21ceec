"""Each file is read once, and never believed after it changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from trtspec.hashing import HashMemo


def old_file(path: Path, data: bytes, at: int = 10**18) -> Path:
    path.write_bytes(data)
    os.utime(path, ns=(at, at))
    return path


def test_hash_is_sha256(tmp_path: Path) -> None:
    path = old_file(tmp_path / "f", b"abc")
    assert HashMemo(tmp_path / "m").sha256(path) == hashlib.sha256(b"abc").hexdigest()


def test_remembered_over_processes(tmp_path: Path) -> None:
    path = old_file(tmp_path / "f", b"abc")
    first = HashMemo(tmp_path / "m")
    first.sha256(path)
    first.save()
    second = HashMemo(tmp_path / "m")
    assert second.sha256(path) == first.sha256(path)
    assert second.bytes_read == 0


def test_changed_size_or_time_is_read_again(tmp_path: Path) -> None:
    memo = HashMemo(tmp_path / "m")
    path = old_file(tmp_path / "f", b"abc")
    memo.sha256(path)
    old_file(path, b"abd", at=10**18 + 1)
    assert memo.sha256(path) == hashlib.sha256(b"abd").hexdigest()


def test_young_file_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")  # its mtime is now: it could change again within the clock's step
    memo = HashMemo(tmp_path / "m")
    memo.sha256(path)
    memo.sha256(path)
    assert memo.bytes_read == 6


def test_two_memos_merge_on_save(tmp_path: Path) -> None:
    a, b = old_file(tmp_path / "a", b"a"), old_file(tmp_path / "b", b"b")
    one, two = HashMemo(tmp_path / "m"), HashMemo(tmp_path / "m")
    one.sha256(a)
    two.sha256(b)
    one.save()
    two.save()
    third = HashMemo(tmp_path / "m")
    third.sha256(a)
    third.sha256(b)
    assert third.bytes_read == 0


def test_a_place_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    memo = HashMemo(tmp_path / "file/memo")
    memo.sha256(old_file(tmp_path / "f", b"abc"))
    memo.save()
    assert HashMemo(tmp_path / "file/memo").bytes_read == 0
    assert (tmp_path / "file").is_file()


def test_broken_memo_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("{not json")
    path = old_file(tmp_path / "f", b"abc")
    assert HashMemo(tmp_path / "m").sha256(path) == hashlib.sha256(b"abc").hexdigest()
