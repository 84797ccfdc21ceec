"""A Triton server as a value: started, ready, asked, stopped, with nothing left behind.

The server lives under :mod:`trtspec.supervisor`; whatever becomes of this process, the server, its Python stubs,
its shared memory and its private folder go with it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
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
from trtspec.triton import access, health, installation, launch, leftovers, pbtxt, pipeline
from trtspec.triton.draining import Draining
from trtspec.triton.ports import Ports, reserve
from trtspec.triton.serverlog import lost_a_lock, model_refused, port_was_taken, telling_lines
from trtspec.triton.stubs import Abandoned, is_alive, running_models

POLL = 0.1
WATCH = 0.5
ATTEMPTS = 3
DYING = 2.0
BEFORE_KILL = 0.95
"""Of `stop_timeout`; the rest is for what must be done after a SIGKILL."""
SHARED_MEMORY_POOL = 64 << 20
"""Bytes of each Python model's pool: python_backend's own default until 2023, before it became 1 MiB and growing."""
KNOWN_FAULT = "a known fault of Triton's Python backend on a busy or paused machine, see docs/serving.md"
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1"}  # noqa: S104  asked for by the user


class LostModel(ServingError):
    """A known fault of Triton's Python backend that ends or blocks the whole server (docs/serving.md)."""


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


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

    def __init__(self, process: Process, ports: Ports, launch: _Launch, name: str, draining: Draining) -> None:
        self._process = process
        self._name = name
        self._ports = ports
        self._host = ANY_ADDRESS.get(launch.serving.host, launch.serving.host)
        self._launch = launch
        self._stubs: Counter[str] = Counter()
        self._draining = draining
        self.without_draft = ""
        """Why the draft model did not load or is dead, where the server runs all the same; else empty."""

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
        note: Callable[[str], None] = _say,
    ) -> TritonServer:
        """Start tritonserver on `repository` and return when every model is ready (see `serving.require_draft`).

        `environment` is added to ours for the server and its Python models (such as OMP_NUM_THREADS). Output goes
        to `log`. `through` turns the server's argument list into the one that is run, such as one of `mpirun`.
        `note` is told when it has to be started again. MissingError: no tritonserver, or a port in use.
        ServingError: it died or was not ready in time.
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
            except LostModel as lost:
                server.stop()
                if attempt == ATTEMPTS:
                    raise
                note(f"{lost.what}, {lost.found}: starting it again ({attempt + 1} of {ATTEMPTS})")
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
            draining = Draining(folder)
            ports = reserve(launch.serving, launch.port_patience)
            process = launch.runner.start(
                launch.through([str(found.binary), *_options(launch, ports, name), *around.options]),
                log=launch.log,
                grace=launch.serving.stop_timeout,
                remove=leftovers.patterns(name),
                cwd=folder,
                environment={**around.environment, **draining.environment},
                private=True,
            )
        except BaseException:
            remove(leftovers.patterns(name))
            raise
        return cls(process, ports, launch, name, draining)

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

    def check(self, *, draft: bool = True) -> None:
        """ServingError with the log's telling lines if the server or the process of one of its models has died.

        Without `draft` its death is noted in `without_draft` only: requests go on with the target alone.
        """
        dead = self._dead_models()
        died = f"the process of model {pipeline.DRAFT} has died"
        if not draft and pipeline.DRAFT in dead:
            dead.remove(pipeline.DRAFT)
            self.without_draft = died
        elif self.without_draft == died:
            self.without_draft = ""  # it was loaded again
        # When the server dies, so do its models: it is named first.
        code = self._process.poll() if is_alive(self.pid) else self._process.wait()
        if code is not None:
            raise self._ended(f"tritonserver {describe(code)}")
        if dead:
            raise self._failure(f"the process of model {', '.join(dead)} has died")

    def wait(self, note: Callable[[str], None] = lambda text: None) -> None:  # noqa: ARG005
        """Stay in the foreground until Ctrl-C or SIGTERM; ServingError if the server ends by itself.

        A draft model that dies does not end it: `note` is told, once.
        """
        said = self.without_draft
        with _sigterm_as_interrupt(), contextlib.suppress(KeyboardInterrupt):
            while True:
                self.check(draft=False)
                if self.without_draft not in ("", said):
                    note(
                        f"{self.without_draft}; requests go on with the target alone until the server is started again"
                    )
                said = self.without_draft
                time.sleep(WATCH)

    def stop(self) -> None:
        """Let running requests end, then SIGTERM, then SIGKILL, so that all is gone `stop_timeout` after the call.

        No process and no shared memory remains. May be repeated. Triton itself would wait for ever for a client that
        keeps its stream open.
        """
        kill_at = time.monotonic() + BEFORE_KILL * self._launch.serving.stop_timeout
        dead = set(self._dead_models()) if self.running else set()
        if self.running and not dead - {pipeline.DRAFT}:
            self._draining.drain(kill_at - time.monotonic(), is_alive)
        if dead:
            # Triton would wait in vain for them to be unloaded.
            self._process.kill()
        else:
            self._process.stop(max(0.0, kill_at - time.monotonic()))

    def __enter__(self) -> TritonServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_ready(self, expected: list[str]) -> None:
        abandoned = Abandoned(self.pid)
        try:
            self._become_ready(expected, abandoned)
        except LostModel:
            raise
        except ServingError:
            # A process that does not crash by itself is given up on first; it may then end in any way.
            if abandoned.seen and not model_refused(self.log):
                raise self._lost(f"tritonserver has given up on model {', '.join(sorted(abandoned.seen))}") from None
            raise

    def _become_ready(self, expected: list[str], abandoned: Abandoned) -> None:
        deadline = time.monotonic() + self._launch.serving.start_timeout
        while not health.ready(self._host, self._ports.http):
            self.check()
            if abandoned.models():
                raise self._failure("tritonserver waits in vain for the end of a model's process")
            if time.monotonic() > deadline:
                raise self._failure(f"tritonserver was not ready within {self._launch.serving.start_timeout:g} s")
            time.sleep(POLL)
        self.check()
        states = {model.name: model for model in self.models()}
        for name in expected:
            model = states.get(name)
            if model is None or model.state != "READY":
                reason = model.reason if model else "the server does not know it"
                if name == pipeline.DRAFT and not self._launch.serving.require_draft:
                    self.without_draft = f"model {name} is not ready: {reason}"
                    continue
                raise self._failure(f"model {name} is not ready: {reason}")
        self._stubs = running_models(self.pid)
        leftovers.keep_private(self._name)

    def _dead_models(self) -> list[str]:
        """Models with fewer processes than when the server became ready."""
        return sorted(self._stubs - running_models(self.pid)) if self._stubs else []

    def _ended(self, what: str) -> ServingError:
        return self._lost(what) if lost_a_lock(self.log) else self._failure(what)

    def _lost(self, what: str) -> LostModel:
        error = LostModel(what, found=KNOWN_FAULT, fix="start it again with less load on this machine")
        error.context["log"] = str(self.log)
        return error

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


def _options(started: _Launch, ports: Ports, name: str) -> list[str]:
    host, serving = started.serving.host, started.serving
    strict = "true" if serving.require_draft else "false"
    return [
        f"--model-repository={started.repository}",
        "--disable-auto-complete-config",
        f"--exit-on-error={strict}",
        f"--strict-readiness={strict}",
        f"--exit-timeout-secs={max(1, math.ceil(serving.stop_timeout))}",
        f"--backend-config=python,shm-region-prefix-name={name}-",
        # A pool that grows while other processes use it can abort the server (triton-inference-server/server
        # issue 8882); the pages of a pool that never needs to grow cost nothing until they are touched.
        f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY_POOL}",
        f"--backend-config=python,shm-growth-byte-size={SHARED_MEMORY_POOL}",
        f"--backend-config=python,thread-pool-size={launch.pool(_concurrent(started.repository))}",
        # The default of 30 s is short for a model that imports torch on a loaded machine.
        f"--backend-config=python,stub-timeout-seconds={math.ceil(serving.start_timeout)}",
        f"--http-address={host}",
        f"--http-port={ports.http}",
        f"--grpc-address={host}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-address={host}",
        f"--metrics-port={ports.metrics}",
        *access.options(serving.server_args),
    ]


def _concurrent(repository: Path) -> int:
    """Requests that the pipeline in `repository` works on at once; 0 where there is none."""
    path = repository / pipeline.BLS / pbtxt.FILE
    if not path.is_file():
        return 0
    given = pbtxt.parameters(pbtxt.read(path)).get("max_concurrent_requests", "")
    return int(given) if given.isdecimal() else 0


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
