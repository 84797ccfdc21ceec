"""Folders appear whole or not at all, and are reused exactly when nothing changed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.errors import BuildError, ConfigError
from trtspec.hashing import HashMemo
from trtspec.store import MANIFEST, Stage, content_key, lock, publish, read_manifest, verify_folder, write_atomic


def stage(out: Path, **inputs: object) -> Stage:
    return Stage("thing", out, inputs or {"a": 1}, frozenset({"policy.json"}))


def fill(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "data.bin").write_bytes(b"x" * 1000)
    (folder / "policy.json").write_text("{}")


@pytest.fixture
def memo(tmp_path: Path) -> HashMemo:
    return HashMemo(tmp_path / "memo" / "hashes.json")


def test_first_is_built_second_is_reused_and_reads_nothing(tmp_path: Path, memo: HashMemo) -> None:
    out = tmp_path / "out"
    assert publish(stage(out), fill, memo).action == "built"
    before = memo.bytes_read
    calls: list[Path] = []
    assert publish(stage(out), calls.append, memo).action == "reused"
    assert not calls
    assert memo.bytes_read == before


def test_changed_input_rebuilds_and_names_it(tmp_path: Path, memo: HashMemo) -> None:
    out = tmp_path / "out"
    publish(stage(out, weights="w1", dtype="f16"), fill, memo)
    again = publish(stage(out, weights="w2", dtype="f16"), fill, memo)
    assert (again.action, again.reason) == ("built", "changed: weights")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda f: (f / "sub/data.bin").unlink(), "sub/data.bin is gone"),
        (lambda f: (f / "sub/data.bin").write_bytes(b"y"), "sub/data.bin has 1 bytes instead of 1000"),
        (lambda f: (f / "sub/data.bin").write_bytes(b"y" * 1000), "sub/data.bin has other content than was published"),
        (lambda f: (f / MANIFEST).write_text("{"), "it has no readable manifest"),
    ],
)
def test_damage_is_noticed_and_mended(tmp_path: Path, memo: HashMemo, damage, reason: str) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out"
    publish(stage(out), fill, memo)
    damage(out)
    again = publish(stage(out), fill, memo)
    assert (again.action, again.reason) == ("built", reason)
    assert verify_folder(out, memo) == []


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_what_is_not_ours_is_never_replaced(tmp_path: Path, memo: HashMemo, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "folder":
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")
    elif kind == "file":
        out.write_text("years of work")
    else:
        out.symlink_to(tmp_path / "absent")
    before = out.lstat().st_ino
    with pytest.raises(ConfigError, match="trtspec did not make"):
        publish(stage(out), fill, memo)
    assert out.lstat().st_ino == before
    assert not list(tmp_path.glob(".out.partial-*"))


def test_an_empty_folder_may_be_filled(tmp_path: Path, memo: HashMemo) -> None:
    (tmp_path / "out").mkdir()
    assert publish(stage(tmp_path / "out"), fill, memo).action == "built"


def test_touching_a_file_without_changing_it_keeps_the_folder(tmp_path: Path, memo: HashMemo) -> None:
    out = tmp_path / "out"
    publish(stage(out), fill, memo)
    os.utime(out / "sub/data.bin", ns=(1, 1))
    assert publish(stage(out), fill, memo).action == "reused"


def test_mutable_file_may_change(tmp_path: Path, memo: HashMemo) -> None:
    out = tmp_path / "out"
    publish(stage(out), fill, memo)
    (out / "policy.json").write_text('{"changed": true}')
    assert publish(stage(out), fill, memo).action == "reused"
    assert "policy.json" not in read_manifest(out)["files"]  # type: ignore[index]


def test_failing_fill_leaves_what_was_there(tmp_path: Path, memo: HashMemo) -> None:
    out = tmp_path / "out"
    publish(stage(out, v=1), fill, memo)

    def broken(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(28, "No space left on device", str(folder / "half"))

    with pytest.raises(BuildError, match="No space left on device"):
        publish(stage(out, v=2), broken, memo)
    assert read_manifest(out)["inputs"] == {"v": 1}  # type: ignore[index]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.lock", "memo", "out"]


def _build_slowly(out: Path, memo_path: Path) -> None:
    def slow(folder: Path) -> None:
        (folder / "half").write_text("half")
        time.sleep(60)

    publish(stage(out), slow, HashMemo(memo_path))


def test_killed_build_leaves_nothing_finished_and_the_next_cleans_up(tmp_path: Path, memo: HashMemo) -> None:
    out = tmp_path / "out"
    child = multiprocessing.get_context("spawn").Process(target=_build_slowly, args=(out, tmp_path / "m"))
    child.start()
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".out.partial-*/half")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)  # type: ignore[arg-type]
    child.join()
    assert list(tmp_path.glob(".out.partial-*"))
    assert not out.exists()
    assert publish(stage(out), fill, memo).action == "built"
    assert not list(tmp_path.glob(".out.partial-*"))


def _hold(out: Path, held, release) -> None:  # type: ignore[no-untyped-def]
    with lock(out):
        held.set()
        release.wait(30)


def test_lock_waits_and_says_for_whom(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, release = spawn.Event(), spawn.Event()
    child = spawn.Process(target=_hold, args=(tmp_path / "out", held, release))
    child.start()
    assert held.wait(30)
    said: list[str] = []

    def notice(text: str) -> None:
        said.append(text)
        release.set()

    with lock(tmp_path / "out", notice):
        pass
    child.join()
    assert said == [f"waiting: process {child.pid} is working on {tmp_path / 'out'}"]


def test_write_atomic_keeps_the_old_file_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, "old")

    def refuse(*args: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


facts = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=5), st.booleans()), max_size=5)


@given(facts)
def test_key_does_not_depend_on_order_and_survives_storage(inputs: dict[str, object]) -> None:
    shuffled = dict(reversed(list(inputs.items())))
    assert content_key(**shuffled) == content_key(**inputs)
    assert content_key(**json.loads(json.dumps(inputs))) == content_key(**inputs)


@given(facts, facts)
def test_different_facts_have_different_keys(a: dict[str, object], b: dict[str, object]) -> None:
    same = json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    assert (content_key(**a) == content_key(**b)) == same
