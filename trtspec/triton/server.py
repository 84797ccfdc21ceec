"""A Triton server as a value: started, ready, asked, stopped, with nothing left behind.

The server lives under :mod:`trtspec.supervisor`; whatever becomes of this process, the server, its Python stubs,
its shared memory and its private folder go with it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from trtspec.config.serving import Serving
from trtspec.errors import ServingError
from trtspec.runner import Process, Runner, SubprocessRunner, describe
from trtspec.supervisor import remove
from trtspec.triton import health, installation, leftovers
from trtspec.triton.ports import Ports, reserve
from trtspec.triton.serverlog import port_was_taken, telling_lines
from trtspec.triton.stubs import is_alive, running_models

POLL = 0.1
WATCH = 0.5
ATTEMPTS = 3
DYING = 2.0
SHARED_MEMORY_POOL = 64 << 20
"""Bytes of each Python model's pool: python_backend's own default until 2023, before it became 1 MiB and growing."""
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1"}  # noqa: S104  asked for by the user


@dataclass(frozen=True)
class _Launch:
    """All that one attempt to start needs."""

    repository: Path
    serving: Serving
    log: Path
    environment: Mapping[str, str]
    runner: Runner
    port_patience: float
    through: Callable[[Sequence[str]], Sequence[str]]


class TritonServer:
    """A running server. Use it as a context manager, or call :meth:`stop`."""

    def __init__(self, process: Process, ports: Ports, launch: _Launch) -> None:
        self._process = process
        self._ports = ports
        self._host = ANY_ADDRESS.get(launch.serving.host, launch.serving.host)
        self._launch = launch
        self._stubs: Counter[str] = Counter()

    @classmethod
    def start(
        cls,
        repository: Path,
        serving: Serving,
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        runner: Runner | None = None,
        through: Callable[[Sequence[str]], Sequence[str]] = list,
    ) -> TritonServer:
        """Start tritonserver on `repository` and return when every model is ready.

        `environment` is added to ours for the server and its Python models (such as OMP_NUM_THREADS). Output goes
        to `log`. `through` turns the server's argument list into the one that is run, such as one of `mpirun`.
        MissingError: no tritonserver, or a port in use. ServingError: it died or was not ready in time.
        """
        launch = _Launch(
            repository.resolve(),
            serving,
            log.resolve(),
            {**os.environ, **(environment or {})},
            runner or SubprocessRunner(),
            # What a killed trtspec left may include a server that is dying this very moment.
            DYING if leftovers.sweep() else 0.0,
            through,
        )
        expected = model_names(launch.repository)
        for attempt in range(1, ATTEMPTS + 1):
            server = cls._launch_once(launch)
            try:
                server._await_ready(expected)
                return server
            except ServingError:
                server.stop()
                # Between our look at a free port and the server's bind someone may have taken it.
                if not (server._ports.chosen and attempt < ATTEMPTS and port_was_taken(log)):
                    raise
            except BaseException:
                server.stop()
                raise
        raise AssertionError("unreachable")

    @classmethod
    def _launch_once(cls, launch: _Launch) -> TritonServer:
        found = installation.find_installation(launch.serving.tritonserver, launch.environment)
        name = leftovers.new_name()
        folder = leftovers.private_folder(name)
        try:
            around = installation.prepare(found, folder, launch.environment)
            ports = reserve(launch.serving, launch.port_patience)
            process = launch.runner.start(
                launch.through([str(found.binary), *_options(launch, ports, name), *around.options]),
                log=launch.log,
                grace=launch.serving.stop_timeout,
                remove=leftovers.patterns(name),
                cwd=folder,
                environment=around.environment,
            )
        except BaseException:
            remove(leftovers.patterns(name))
            raise
        return cls(process, ports, launch)

    @property
    def http_url(self) -> str:
        """`host:port` of the HTTP endpoint, as tritonclient wants it."""
        return f"{self._host}:{self._ports.http}"

    @property
    def grpc_url(self) -> str:
        """`host:port` of the gRPC endpoint."""
        return f"{self._host}:{self._ports.grpc}"

    @property
    def metrics_url(self) -> str:
        """`http://host:port/metrics`."""
        return f"http://{self._host}:{self._ports.metrics}/metrics"

    @property
    def pid(self) -> int:
        """Process id of tritonserver."""
        return self._process.pid

    @property
    def log(self) -> Path:
        """The server's log file, absolute."""
        return self._launch.log

    @property
    def running(self) -> bool:
        """Whether the server's process lives."""
        return self._process.poll() is None

    def models(self) -> list[health.Model]:
        """Every model with its state."""
        return health.models(self._host, self._ports.http)

    def metrics(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """See :func:`trtspec.triton.health.metrics`."""
        return health.metrics(self._host, self._ports.metrics)

    def check(self) -> None:
        """ServingError with the log's telling lines if the server or the process of one of its models has died."""
        dead = self._dead_models()
        # When the server dies, so do its models: it is named first.
        code = self._process.poll() if is_alive(self.pid) else self._process.wait()
        if code is not None:
            raise self._failure(f"tritonserver {describe(code)}")
        if dead:
            raise self._failure(f"the process of model {', '.join(dead)} has died")

    def wait(self) -> None:
        """Stay in the foreground until Ctrl-C or SIGTERM; ServingError if the server ends by itself."""
        with _sigterm_as_interrupt(), contextlib.suppress(KeyboardInterrupt):
            while True:
                self.check()
                time.sleep(WATCH)

    def stop(self) -> None:
        """SIGTERM, `stop_timeout`, SIGKILL; no process and no shared memory remains. May be repeated."""
        if self.running and self._dead_models():
            # Triton would wait in vain for them to be unloaded.
            self._process.kill()
        else:
            self._process.stop()

    def __enter__(self) -> TritonServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_ready(self, expected: list[str]) -> None:
        deadline = time.monotonic() + self._launch.serving.start_timeout
        while not health.ready(self._host, self._ports.http):
            self.check()
            if time.monotonic() > deadline:
                raise self._failure(f"tritonserver was not ready within {self._launch.serving.start_timeout:g} s")
            time.sleep(POLL)
        self.check()
        states = {model.name: model for model in self.models()}
        for name in expected:
            model = states.get(name)
            if model is None or model.state != "READY":
                reason = model.reason if model else "the server does not know it"
                raise self._failure(f"model {name} is not ready: {reason}")

        self._stubs = running_models(self.pid)

    def _dead_models(self) -> list[str]:
        """Models with fewer processes than when the server became ready."""
        return sorted(self._stubs - running_models(self.pid)) if self._stubs else []

    def _failure(self, what: str) -> ServingError:
        found = "; ".join(telling_lines(self.log)) or "nothing telling in the log"
        error = ServingError(what, found=found, fix="read the server's log")
        error.context["log"] = str(self.log)
        return error


def model_names(repository: Path) -> list[str]:
    """Folders of `repository` that hold a config.pbtxt; ServingError when there is none."""
    try:
        names = sorted(entry.parent.name for entry in repository.glob("*/config.pbtxt"))
    except OSError as error:
        raise ServingError(f"cannot read the model repository: {error.strerror}", where=repository) from None
    if not names:
        raise ServingError("no model repository", where=repository, fix="run `trtspec build` first")
    return names


def _options(launch: _Launch, ports: Ports, name: str) -> list[str]:
    host, serving = launch.serving.host, launch.serving
    return [
        f"--model-repository={launch.repository}",
        "--disable-auto-complete-config",
        "--exit-on-error=true",
        "--strict-readiness=true",
        f"--exit-timeout-secs={max(1, math.ceil(serving.stop_timeout))}",
        f"--backend-config=python,shm-region-prefix-name={name}-",
        # A pool that grows while other processes use it can abort the server (triton-inference-server/server
        # issue 8882); the pages of a pool that never needs to grow cost nothing until they are touched.
        f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY_POOL}",
        f"--backend-config=python,shm-growth-byte-size={SHARED_MEMORY_POOL}",
        # The default of 30 s is short for a model that imports torch on a loaded machine.
        f"--backend-config=python,stub-timeout-seconds={math.ceil(serving.start_timeout)}",
        f"--http-address={host}",
        f"--http-port={ports.http}",
        f"--grpc-address={host}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-address={host}",
        f"--metrics-port={ports.metrics}",
    ]


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that `finally` blocks run; signal handlers belong to the main thread alone."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
