"""The process of the draft model is killed, once or again and again: answers are the target's, and drafts come back.

Triton starts no other process for a model whose process died, until the model is unloaded and loaded again
(docs/serving.md). So that is done between two kills.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import eventually, mentioning
from tests.triton.faultyllm import DRAFT, heard
from tests.triton.test_faults import EXPLICIT, SETTINGS, Served, serve, texts_are_right, well_again
from tests.triton.throwaway import serving
from trtspec.errors import ServingError
from trtspec.triton.generation import Generation
from trtspec.triton.serverlog import lost_a_lock
from trtspec.triton.stubs import PROGRAM

pytestmark = pytest.mark.triton

LOST = {"target-only:draft-slow", "target-only:draft-failed"}
"""Calls that the process had are never answered; one that came while it died may be told so."""
SERVERS = 3


def with_a_server(folder: Path, test: Callable[[Served], None]) -> None:
    """Triton ends itself when a killed process held a lock that both share (docs/serving.md): once more, then."""
    for attempt in range(1, SERVERS + 1):
        own = folder / str(attempt)
        own.mkdir()
        try:
            with contextmanager(serve)(own, serving(**SETTINGS), EXPLICIT) as served:
                test(served)
            return
        except (ServingError, AssertionError):
            if attempt == SERVERS or not lost_a_lock(own / "triton.log"):
                raise


def test_a_killed_draft_in_the_middle_of_sixteen_streams(tmp_path: Path) -> None:
    def test(served: Served) -> None:
        _kill_in_the_middle(served)
        served.server.check(draft=False)
        assert "has died" in served.server.without_draft
        with pytest.raises(ServingError, match=f"the process of model {DRAFT} has died"):
            served.server.check()
        _load_again(served)
        assert served.server.without_draft == ""

    with_a_server(tmp_path, test)


def test_sixteen_streams_whose_draft_is_killed_each_time_it_is_back(tmp_path: Path) -> None:
    def test(served: Served) -> None:
        for _ in range(4):
            _kill_in_the_middle(served)
            _load_again(served)
        texts_are_right(served.all_at_once())

    with_a_server(tmp_path, test)


def _kill_in_the_middle(served: Served) -> None:
    counted, logged = _counted(served), len(served.events("fallback"))
    answers = _killed_meanwhile(served)
    texts_are_right(answers, 110)
    lost = [found.mode for found in answers if found.mode != "speculative"]
    assert lost
    assert set(lost) <= LOST
    assert eventually(lambda: _counted(served) > counted)
    assert len(served.events("fallback")) > logged
    # Nobody starts its process again, and requests do without.
    assert served.ask("afterwards").mode in LOST
    assert _stub(served, DRAFT) == []


def _killed_meanwhile(served: Served) -> list[Generation]:
    """The answers to 16 requests, while whose drafts were made their process was killed."""
    with ThreadPoolExecutor(1) as pool:
        calls = heard(served.repository, DRAFT)
        running = pool.submit(served.all_at_once, max_tokens=110)
        assert eventually(lambda: heard(served.repository, DRAFT) > calls + 32)
        [pid] = _stub(served, DRAFT)
        os.kill(pid, signal.SIGKILL)
        return running.result()


def _load_again(served: Served) -> None:
    """A new process beside the calls that hang for ever."""
    served.control("unload")
    served.control("load")
    well_again(served)
    served.server.check()


def _counted(served: Served) -> float:
    """Requests that went on without the draft because of its state, on the metrics page."""
    found = served.server.metrics().get("trtspec_fallbacks_total", {})
    return sum(n for labels, n in found.items() if dict(labels)["reason"] in ("draft-slow", "draft-failed"))


def _stub(served: Served, model: str) -> list[int]:
    """Triton starts it through a shell, which waits for it."""
    found = mentioning(f"{served.repository}/{model}/1/model.py")
    programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] for pid in found}
    return [pid for pid, program in programs.items() if program.endswith(PROGRAM.encode())]
