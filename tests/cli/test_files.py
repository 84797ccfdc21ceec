"""Places that cannot be written are one line, before any work; a machine's fault is not called ours."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.release.made import result
from trtspec.cli._files import require_writable, require_writable_folder
from trtspec.cli._main import cli, run
from trtspec.errors import ConfigError

TINY = str(PROJECT / "configs" / "tiny.yaml")


@pytest.fixture
def document(tmp_path: Path) -> str:
    path = tmp_path / "result.json"
    path.write_text(result({"code": 0.75}).model_dump_json())
    return str(path)


def loop(folder: Path) -> Path:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    return folder / "a"


@pytest.mark.parametrize("verb", ["report", "policy"])
def test_a_folder_below_a_file_or_a_loop_of_links(
    verb: str, document: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("kept")
    for place in (tmp_path / "file" / "x", loop(tmp_path) / "x"):
        assert run([verb, document, "--out", str(place)]) == 2
        said = capsys.readouterr()
        assert "no folder" in said.err
        assert said.err.count("\n") == 1
        assert not said.out
    assert (tmp_path / "file").read_text() == "kept"


def test_measuring_does_not_begin_where_its_document_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for given in (["--out", str(tmp_path)], ["--out", str(tmp_path / "file" / "x.json")],
                  ["--k", "1,2", "--out", str(tmp_path / "file")]):  # fmt: skip
        assert run(["measure", TINY, *given]) == 2
        assert "--out" in capsys.readouterr().err
    assert run(["validate", TINY, "--set", f"output.reports={tmp_path / 'file'}"]) == 2


def test_what_may_be_written_is_not_made(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "deep" / "x.json")
    require_writable_folder(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ConfigError, match="no permission"):
        require_writable(tmp_path / "x.json")


def test_a_full_disk_is_not_called_a_fault_of_ours(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("trtspec.store.os.fsync", full)
    out = tmp_path / "out"
    assert run(["report", document, "--out", str(out), "--json"]) == 3
    said = capsys.readouterr()
    assert "No space left on device" in said.err
    assert "fault of trtspec" not in said.err
    assert json.loads(said.out)["exit_code"] == 3
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("url", ["nonsense", "localhost:99999", "localhost:0", "http://localhost:8001", ":8001", "a:b"])
def test_an_address_that_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", TINY, "--url", url]) == 2
    assert "HOST:PORT" in capsys.readouterr().err


def test_a_lost_connection_is_not_called_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(cli, "main", lost)
    assert run(["check"]) == 70
    assert "a file cannot be used" not in capsys.readouterr().err
