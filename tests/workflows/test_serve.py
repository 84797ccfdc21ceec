"""A server for a verb: what is said when it dies under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import FakeRunner
from tests.triton.throwaway import IDLE, add_model, serving
from tests.workflows.pair import own_pair
from trtspec.errors import ServingError
from trtspec.supervisor import remove
from trtspec.triton import health, installation, server
from trtspec.triton.failures import RequestError
from trtspec.triton.server import LostModel
from trtspec.workflows.serve import serving_on

LOST = "terminate called after throwing an instance of 'boost::interprocess::lock_exception'"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> FakeRunner:
    """A server that is ready at once, and has written that line."""
    found = installation.Installation(Path("/opt/tritonserver/bin/tritonserver"))
    monkeypatch.setattr(installation, "find_installation", lambda given, environ: found)
    monkeypatch.setattr(health, "ready", lambda host, port: True)
    monkeypatch.setattr(health, "models", lambda host, port: [health.Model("idle", "READY", "")])
    runner = FakeRunner(((None, LOST),))
    monkeypatch.setattr(server, "SubprocessRunner", lambda: runner)
    return runner


@pytest.mark.parametrize(
    ("dies", "kind", "said"),
    [
        (True, LostModel, r"\[serve\] tritonserver was ended by SIGABRT \(found a known fault of Triton's"),
        (False, RequestError, r"\[serve\] the server cannot be reached"),
    ],
)
def test_a_request_that_fails_because_the_server_died_is_not_what_is_said(
    runner: FakeRunner, tmp_path: Path, dies: bool, kind: type[ServingError], said: str
) -> None:
    repository = add_model(tmp_path / "repository", "idle", IDLE)
    given = own_pair(tmp_path).model_copy(update={"serving": serving()})
    given.report_dir.mkdir(parents=True)

    def measure() -> None:
        with serving_on(given, repository, lambda text: None):
            if dies:
                runner.processes[0].code = -6
            raise RequestError("the server cannot be reached", kind="unreachable")

    with pytest.raises(ServingError, match=said) as caught:
        measure()
    assert (type(caught.value), caught.value.exit_code) == (kind, 5)
    remove(list(runner.started[0].remove))
