"""Letting requests end: the manager's side of the folder."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.processes import eventually
from trtspec.triton.draining import VARIABLE, Draining
from trtspec.triton.models.tensorrt_llm_bls import drain


def test_where_no_pipeline_serves_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    assert Draining(tmp_path).drain(60.0, lambda _: True)
    assert list(tmp_path.iterdir()) == []
    assert Draining(tmp_path / "gone").drain(60.0, lambda _: True)


def test_it_waits_for_every_pipeline_that_lives(tmp_path: Path) -> None:
    for pid in (1, 2, 3):
        (tmp_path / f"serving.{pid}").touch()
    done = threading.Event()

    def wait() -> None:
        if Draining(tmp_path).drain(20.0, lambda pid: pid != 3):
            done.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert eventually(lambda: (tmp_path / "drain").exists())
    (tmp_path / "drained.1").touch()
    assert not done.wait(0.2)
    (tmp_path / "drained.2").touch()
    waiting.join(10)
    assert done.is_set()


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    (tmp_path / "serving.1").touch()
    assert not Draining(tmp_path).drain(0.05, lambda _: True)


def test_both_sides_speak_of_the_same_folder(tmp_path: Path) -> None:
    assert VARIABLE == drain.VARIABLE
    drain.follow(lambda: None, str(tmp_path))
    assert eventually(lambda: any(tmp_path.glob("serving.*")))
    assert Draining(tmp_path).drain(10.0, lambda _: True)
