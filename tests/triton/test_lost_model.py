"""A known fault of Triton's Python backend: recognised, said, and the start repeated (docs/serving.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import FakeRunner
from tests.triton import throwaway
from tests.triton.throwaway import add_model, serving
from trtspec.errors import ServingError
from trtspec.supervisor import remove
from trtspec.triton import health, server
from trtspec.triton.installation import Installation
from trtspec.triton.server import LostModel, TritonServer
from trtspec.triton.stubs import Abandoned

LOST = "terminate called after throwing an instance of 'boost::interprocess::lock_exception'\n  what():  boost::…"
UNHEALTHY = "error: creating server: Internal - Stub process 'idle_0_0' is not healthy."
REFUSED = 'I1129 19:49:18.666041 1 pb_stub.cc:366] "Failed to initialize Python stub: ValueError: no engine"'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return add_model(tmp_path / "repository", "idle", throwaway.IDLE)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "triton.log"


class TestWithAFakeRunner:
    @pytest.fixture(autouse=True)
    def _found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = Installation(Path("/opt/tritonserver/bin/tritonserver"))
        monkeypatch.setattr(server.installation, "find_installation", lambda given, environ: found)
        monkeypatch.setattr(health, "ready", lambda host, port: True)
        monkeypatch.setattr(health, "models", lambda host, port: [health.Model("idle", "READY", "")])

    @pytest.fixture
    def seen(self, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Models that each server was seen to give up on."""
        found: set[str] = set()

        def look(pid: int) -> Abandoned:
            abandoned = Abandoned(pid)
            abandoned.seen |= found
            return abandoned

        monkeypatch.setattr(server, "Abandoned", look)
        return found

    def test_a_start_that_the_python_backend_ends_is_repeated_and_said(self, repository: Path, log: Path) -> None:
        runner = FakeRunner(((-6, LOST), (None, "")))
        said: list[str] = []
        with TritonServer.start(repository, serving(), log, runner=runner, note=said.append):
            first, second = runner.started
        [text] = said
        assert text.startswith("tritonserver was ended by SIGABRT, a known fault of Triton's Python backend")
        assert text.endswith("see docs/serving.md: starting it again (2 of 3)")
        assert runner.processes[0].stops == 1
        assert set(first.remove).isdisjoint(second.remove)
        for started in runner.started:
            remove(list(started.remove))

    def test_it_is_repeated_only_so_often_and_for_nothing_else(self, repository: Path, log: Path) -> None:
        said: list[str] = []
        for outcome, starts, error in (((-6, LOST), server.ATTEMPTS, LostModel), ((-6, "abort"), 1, ServingError)):
            runner = FakeRunner((outcome,))
            with pytest.raises(ServingError, match="was ended by SIGABRT") as caught:
                TritonServer.start(repository, serving(), log, runner=runner, note=said.append)
            assert (len(runner.started), type(caught.value), caught.value.exit_code) == (starts, error, 5)
            for started in runner.started:
                remove(list(started.remove))
        assert len(said) == server.ATTEMPTS - 1

    def test_without_anybody_to_tell_it_is_said_on_stderr(
        self, repository: Path, log: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runner = FakeRunner(((-6, LOST), (None, "")))
        with TritonServer.start(repository, serving(), log, runner=runner):
            assert "starting it again (2 of 3)\n" in capsys.readouterr().err
        for started in runner.started:
            remove(list(started.remove))

    def test_the_same_death_in_service_is_explained_and_not_repaired(self, repository: Path, log: Path) -> None:
        runner = FakeRunner(((None, LOST),))
        with TritonServer.start(repository, serving(), log, runner=runner) as running:
            running.check()  # a model's own end of that kind is none of the server's
            runner.processes[0].code = -6
            with pytest.raises(LostModel, match=r"known fault of Triton.*start it again with less load"):
                running.check()
        assert len(runner.started) == 1
        remove(list(runner.started[0].remove))

    def test_a_model_that_was_given_up_on_may_end_in_any_way(self, repository: Path, log: Path, seen: set[str]) -> None:
        seen.add("idle")
        runner = FakeRunner(((1, UNHEALTHY), (None, "")))
        said: list[str] = []
        with TritonServer.start(repository, serving(), log, runner=runner, note=said.append):
            assert said[0].startswith("tritonserver has given up on model idle, a known fault")
        for started in runner.started:
            remove(list(started.remove))

    @pytest.mark.parametrize(("gave_up", "text"), [(False, UNHEALTHY), (True, f"{REFUSED}\n{UNHEALTHY}")])
    def test_a_model_that_ends_by_itself_is_not_started_again(
        self, repository: Path, log: Path, seen: set[str], gave_up: bool, text: str
    ) -> None:
        seen |= {"idle"} if gave_up else set()
        runner = FakeRunner(((1, text),))
        with pytest.raises(ServingError, match="idle_0_0' is not healthy") as caught:
            TritonServer.start(repository, serving(), log, runner=runner)
        assert not isinstance(caught.value, LostModel)
        assert len(runner.started) == 1
        remove(list(runner.started[0].remove))


@pytest.mark.triton
@pytest.mark.parametrize("also", ["pass", "[pb.Logger.log_info(str(i)) for i in range(20)]"])
def test_a_server_that_has_given_up_on_a_model_is_started_again(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, also: str
) -> None:
    """As on a machine that is paused, or too busy. Triton ends itself then, or waits for ever."""
    monkeypatch.setattr(server, "Abandoned", lambda pid: Abandoned(pid, patience=3.0, every=0.2))
    repository = add_model(tmp_path / "repository", "paused", throwaway.IS_PAUSED_ONCE.replace("ALSO", also))
    said: list[str] = []
    with TritonServer.start(repository, serving(), log, note=said.append) as running:
        running.check()
    assert len(said) == 1
    assert "known fault" in said[0]
