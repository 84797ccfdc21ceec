"""The server as a value: with a fake runner, then with the real Triton."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import trtspec
from tests.fakes import FakeRunner
from tests.processes import alive, eventually, line, mentioning, python
from tests.triton import throwaway
from tests.triton.throwaway import add_model, serving
from trtspec.errors import MissingError, ServingError
from trtspec.supervisor import remove
from trtspec.triton import health, leftovers, server
from trtspec.triton.client import GenerateRequest, TritonClient
from trtspec.triton.connection import Connection
from trtspec.triton.installation import Installation
from trtspec.triton.payload import strings
from trtspec.triton.server import TritonServer

TAKEN = """E1129 19:49:18.666041 1 main.cc:257] "failed to start HTTP service: Socket '127.0.0.1:1' already in use " """


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return add_model(tmp_path / "repository", "idle", throwaway.IDLE)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "triton.log"


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """After every test: no process, no shared memory and no folder of ours."""
    yield
    mine = f"trtspec-{leftovers.new_name().split('-')[1]}-{os.getpid()}-"
    assert mentioning(mine) == []
    assert remains(mine) == []


def remains(name: str) -> list[Path]:
    """Shared memory and folders of that name."""
    return [p for pattern in leftovers.patterns(name) for p in Path("/").glob(pattern.lstrip("/"))]


class TestWithAFakeRunner:
    @pytest.fixture(autouse=True)
    def _found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = Installation(Path("/opt/tritonserver/bin/tritonserver"))
        monkeypatch.setattr(server.installation, "find_installation", lambda given, environ: found)
        monkeypatch.setattr(health, "ready", lambda host, port: True)
        monkeypatch.setattr(health, "models", lambda host, port: [health.Model("idle", "READY", "")])
        monkeypatch.setattr(server, "POLL", 0.01)

    def test_what_is_asked_of_the_runner(self, repository: Path, log: Path) -> None:
        runner = FakeRunner(((None, ""),))
        settings = serving(http_port=18765, stop_timeout=7.5, start_timeout=90.5)
        with TritonServer.start(repository, settings, log, environment={"A": "b"}, runner=runner) as running:
            [started] = runner.started
            assert running.http_url == "127.0.0.1:18765"
            assert f"--grpc-port={running.grpc_url.split(':')[1]}" in started.command
            assert running.metrics_url.startswith("http://127.0.0.1:")
        assert started.command[0] == "/opt/tritonserver/bin/tritonserver"
        for option in (
            f"--model-repository={repository}",
            "--disable-auto-complete-config",
            "--exit-on-error=true",
            "--exit-timeout-secs=8",
            "--http-address=127.0.0.1",
            "--grpc-address=127.0.0.1",
            "--metrics-address=127.0.0.1",
            "--http-port=18765",
            "--backend-config=python,stub-timeout-seconds=91",
        ):
            assert option in started.command
        [prefix] = [word.split("name=")[1] for word in started.command if "shm-region-prefix-name=" in word]
        assert str(leftovers.SHARED_MEMORY / prefix.rstrip("-")) + "*" in started.remove
        assert started.grace == 7.5
        assert started.environment is not None
        assert started.environment["A"] == "b"
        assert started.environment["PATH"] == os.environ["PATH"]
        assert runner.processes[0].stops == 1
        remove(list(started.remove))  # which a real runner does

    def test_the_time_to_stop_counts_all_that_is_done_meanwhile(
        self, repository: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a busy machine the look at the models' processes takes long, and what follows a SIGKILL, too."""
        monkeypatch.setattr(TritonServer, "_dead_models", lambda self: time.sleep(0.4) or [])
        runner = FakeRunner(((None, ""),))
        TritonServer.start(repository, serving(stop_timeout=4.0), log, runner=runner).stop()
        assert runner.processes[0].grace is not None
        assert 2.0 < runner.processes[0].grace <= 0.95 * 4.0 - 0.4
        remove(list(runner.started[0].remove))

    @pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("localhost", "localhost")])
    def test_every_address_is_reached_over_loopback(self, repository: Path, log: Path, host: str, reached: str) -> None:
        runner = FakeRunner(((None, ""),))
        with TritonServer.start(repository, serving(host=host), log, runner=runner) as running:
            assert running.grpc_url.startswith(f"{reached}:")
            assert f"--grpc-address={host}" in runner.started[0].command
        remove(list(runner.started[0].remove))

    def test_a_stolen_free_port_is_replaced(self, repository: Path, log: Path) -> None:
        runner = FakeRunner(((1, TAKEN), (None, "")))
        with TritonServer.start(repository, serving(), log, runner=runner):
            first, second = runner.started
        ports = [{w for w in s.command if w.startswith(("--http-port", "--grpc-port"))} for s in (first, second)]
        assert not ports[0] & ports[1]
        for started in runner.started:
            remove(list(started.remove))

    def test_a_stolen_port_is_replaced_only_so_often(self, repository: Path, log: Path) -> None:
        runner = FakeRunner(((1, TAKEN),))
        with pytest.raises(ServingError, match="already in use"):
            TritonServer.start(repository, serving(), log, runner=runner)
        assert len(runner.started) == server.ATTEMPTS
        for started in runner.started:
            remove(list(started.remove))

    def test_a_given_port_is_never_replaced(self, repository: Path, log: Path) -> None:
        runner = FakeRunner(((1, TAKEN),))
        free = dict(zip(throwaway.PRIVATE, (18766, 18767, 18768), strict=True))
        with pytest.raises(ServingError, match="already in use"):
            TritonServer.start(repository, serving(**free), log, runner=runner)
        assert len(runner.started) == 1
        remove(list(runner.started[0].remove))

    def test_a_model_that_is_not_ready_is_named_with_its_reason(
        self, repository: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        add_model(repository, "second", throwaway.IDLE)
        states = [health.Model("idle", "READY", ""), health.Model("second", "UNAVAILABLE", "it fell over")]
        monkeypatch.setattr(health, "models", lambda host, port: states)
        runner = FakeRunner(((None, ""),))
        with pytest.raises(ServingError, match="model second is not ready: it fell over"):
            TritonServer.start(repository, serving(), log, runner=runner)
        assert runner.processes[0].stops == 1
        remove(list(runner.started[0].remove))

    def test_a_port_in_use_stops_everything_before_it_starts(self, repository: Path, log: Path) -> None:
        runner = FakeRunner()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            number = listener.getsockname()[1]
            with pytest.raises(MissingError, match=rf"serving\.metrics_port: port {number} is in use"):
                TritonServer.start(repository, serving(metrics_port=number), log, runner=runner)
        assert runner.started == []
        assert not log.exists()

    @pytest.mark.parametrize("what", ["absent", "empty"])
    def test_no_repository(self, tmp_path: Path, log: Path, what: str) -> None:
        if what == "empty":
            (tmp_path / what).mkdir()
        with pytest.raises(ServingError, match="no model repository; run `trtspec build` first"):
            TritonServer.start(tmp_path / what, serving(), log, runner=FakeRunner())


@pytest.mark.triton
class TestWithTheRealServer:
    def test_models_see_the_right_world(self, tmp_path: Path, log: Path) -> None:
        repository = add_model(tmp_path / "repository", "world", throwaway.TELLS_ITS_WORLD)
        with TritonServer.start(repository, serving(), log, environment={"OMP_NUM_THREADS": "3"}) as running:
            [world] = [json.loads(text[6:]) for text in log.read_text().splitlines() if text.startswith("WORLD ")]
            assert [(model.name, model.state) for model in running.models()] == [("world", "READY")]
            assert running.metrics()["nv_inference_request_success"][("model", "world"), ("version", "1")] == 0.0
            assert alive(running.pid)
            assert alive(world["pid"])
        import numpy

        assert world["numpy"] == numpy.__version__
        assert world["trtspec"] == os.path.realpath(trtspec.__file__)
        assert world["threads"] == "3"
        assert not alive(running.pid)
        assert not alive(world["pid"])
        # Serving must not change what it serves.
        assert [path.name for path in (repository / "world" / "1").iterdir()] == ["model.py"]

    @pytest.mark.parametrize(
        ("source", "said"),
        [
            (throwaway.CRASHES_AT_LOAD, "model broken: ModuleNotFoundError: No module named 'a_package_that"),
            (throwaway.REFUSES_TO_LOAD, "model broken: ValueError: the engine folder /nowhere is empty"),
        ],
    )
    def test_a_broken_model_is_explained(self, repository: Path, log: Path, source: str, said: str) -> None:
        add_model(repository, "broken", source)
        with pytest.raises(ServingError) as caught:
            TritonServer.start(repository, serving(), log)
        assert said in str(caught.value)
        assert "tritonserver ended with exit code 1" in str(caught.value)
        assert caught.value.context["log"] == str(log)
        assert "Traceback" not in str(caught.value)

    def test_a_broken_config_is_explained(self, repository: Path, log: Path) -> None:
        (repository / "idle" / "config.pbtxt").write_text('backend: "python"\nmax_batch_sizes: 4\n')
        with pytest.raises(ServingError, match="max_batch_sizes"):
            TritonServer.start(repository, serving(), log)

    def test_a_slow_model_runs_into_the_start_timeout(self, tmp_path: Path, log: Path) -> None:
        repository = add_model(tmp_path / "repository", "slow", throwaway.LOADS_SLOWLY)
        began = time.monotonic()
        with pytest.raises(ServingError, match=r"not ready within 1\.5 s"):
            TritonServer.start(repository, serving(start_timeout=1.5, stop_timeout=1.0), log)
        assert time.monotonic() - began < 10.0

    def test_a_death_in_service_is_noticed(self, tmp_path: Path, log: Path) -> None:
        repository = add_model(tmp_path / "repository", "killer", throwaway.KILLS_ITS_SERVER)
        with TritonServer.start(repository, serving(), log) as running:
            connection = Connection(running.grpc_url)
            with pytest.raises(ServingError, match="the server cannot be reached"):
                list(connection.exchange("killer", {"text_input": strings(["x"])}, "", 10.0))
            connection.close()
            with pytest.raises(ServingError, match="tritonserver was ended by SIGKILL"):
                running.wait()
            assert not running.running

    def test_a_dead_model_process_is_noticed_and_does_not_delay_the_stop(self, tmp_path: Path, log: Path) -> None:
        repository = throwaway.add_a_pair(tmp_path / "repository")
        with TritonServer.start(repository, serving(), log) as running, TritonClient(running.grpc_url) as client:
            running.check()
            with pytest.raises(ServingError, match=r"model ensemble: .*not healthy.*start the server again"):
                client.generate("ensemble", GenerateRequest("die", 1, timeout=10.0))
            with pytest.raises(ServingError, match="the process of model ensemble has died"):
                running.wait()
            began = time.monotonic()
        assert time.monotonic() - began < 3.0

    def test_an_open_client_stream_cannot_keep_it_alive(self, repository: Path, log: Path) -> None:
        from tritonclient.grpc import InferenceServerClient

        running = TritonServer.start(repository, serving(stop_timeout=1.0), log)
        client = InferenceServerClient(running.grpc_url)
        client.start_stream(lambda result, error: None)
        try:
            assert client.is_server_ready()
            began = time.monotonic()
            running.stop()
            assert time.monotonic() - began < 6.0
            assert not alive(running.pid)
        finally:
            client.stop_stream(cancel_requests=True)
            client.close()

    def test_it_can_be_started_again_on_the_same_ports_at_once(self, repository: Path, log: Path) -> None:
        with TritonServer.start(repository, serving(), log) as first:
            numbers = [int(url.rpartition(":")[2]) for url in (first.http_url, first.grpc_url)]
        settings = serving(http_port=numbers[0], grpc_port=numbers[1])
        with TritonServer.start(repository, settings, log) as second:
            assert second.http_url == first.http_url
            with pytest.raises(MissingError, match=rf"serving.http_port: port {numbers[0]} is in use"):
                TritonServer.start(repository, settings, log)

    def test_an_interrupt_inside_the_block_stops_it(self, repository: Path, log: Path) -> None:
        running = TritonServer.start(repository, serving(), log)

        def interrupted() -> None:
            with running:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                time.sleep(30)

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert not alive(running.pid)

    def test_an_interrupt_while_it_starts_leaves_nothing(self, tmp_path: Path, log: Path) -> None:
        repository = add_model(tmp_path / "repository", "slow", throwaway.LOADS_SLOWLY)

        def interrupt() -> None:
            assert eventually(lambda: len(mentioning(str(repository))) >= 2)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.1, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            TritonServer.start(repository, serving(stop_timeout=1.0), log)


IN_SPACE = "from trtspec.triton import leftovers; leftovers._space = lambda: {}\n"
PARENT = """
import sys
from pathlib import Path
from tests.triton.throwaway import serving
from trtspec.triton.server import TritonServer
keys = ("http_port", "grpc_port", "metrics_port")
ports = dict(zip(keys, map(int, sys.argv[3:])))
with TritonServer.start(Path(sys.argv[1]), serving(**ports), Path(sys.argv[2])) as server:
    print(server.pid, flush=True)
    server.wait()
print("stopped cleanly", flush=True)
"""


def everyone(server_pid: int, owner: int) -> list[int]:
    """The server, its supervisor and its stubs, which all carry the owner's name on their command line."""
    found = mentioning(f"trtspec-{leftovers.new_name().split('-')[1]}-{owner}-")
    assert server_pid in found
    assert len(found) >= 3
    return found


@pytest.mark.triton
class TestTheDeathOfTheParent:
    def test_kill_9_leaves_nothing_and_the_same_ports_serve_again(self, repository: Path, log: Path) -> None:
        from trtspec.triton.ports import reserve

        free = reserve(serving())
        numbers = [str(free.http), str(free.grpc), str(free.metrics)]
        for _ in range(2):
            with python(PARENT, repository, log, *numbers) as parent:
                family = everyone(int(line(parent)), parent.pid)
                name = f"trtspec-{leftovers.new_name().split('-')[1]}-{parent.pid}"
                assert len(remains(name)) == 2  # a region of one stub, and the private folder
                parent.kill()
            assert eventually(lambda family=family: not any(alive(pid) for pid in family), 3.0)
            assert eventually(lambda name=name: remains(name) == [], 3.0)

    def test_kill_9_while_it_starts(self, tmp_path: Path, log: Path) -> None:
        repository = add_model(tmp_path / "repository", "slow", throwaway.LOADS_SLOWLY)
        with python(PARENT, repository, log) as parent:
            name = f"trtspec-{leftovers.new_name().split('-')[1]}-{parent.pid}"
            assert eventually(lambda: len(mentioning(f"{name}-")) >= 3)
            parent.kill()
        assert eventually(lambda: mentioning(f"{name}-") == [] and remains(name) == [], 3.0)

    def test_kill_9_of_parent_and_supervisor_is_swept_by_the_next_start(
        self, repository: Path, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # An id space of its own, or any other start on this machine would sweep it before we have looked.
        space = os.getpid()
        monkeypatch.setattr(leftovers, "_space", lambda: space)
        with python(IN_SPACE.format(space) + PARENT, repository, log) as parent:
            family = everyone(int(line(parent)), parent.pid)
            [supervisor] = [pid for pid in family if parent_of(pid) == parent.pid]
            os.kill(parent.pid, signal.SIGSTOP)  # or it would clean up itself
            os.kill(supervisor, signal.SIGKILL)
            parent.kill()
        # The kernel ends the server and Triton's stubs follow; their shared memory stays.
        assert eventually(lambda: not any(alive(pid) for pid in family), 30.0)
        name = f"trtspec-{leftovers.new_name().split('-')[1]}-{parent.pid}"
        assert remains(name) != []
        TritonServer.start(repository, serving(), log).stop()
        assert remains(name) == []

    def test_sigterm_ends_the_foreground_cleanly(self, repository: Path, log: Path) -> None:
        with python(PARENT, repository, log) as parent:
            family = everyone(int(line(parent)), parent.pid)
            # The line comes out just before `wait` takes over the signal.
            assert eventually(lambda: handles(parent.pid, signal.SIGTERM))
            parent.terminate()
            assert line(parent) == "stopped cleanly"
        assert parent.returncode == 0
        assert not any(alive(pid) for pid in family)


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for the signal."""
    [mask] = [text.split()[1] for text in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigCgt" in text]
    return bool(int(mask, 16) >> (number - 1) & 1)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
