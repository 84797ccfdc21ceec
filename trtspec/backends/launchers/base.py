"""What a step is, and what runs one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trtspec.config import RunConfig
from trtspec.errors import BuildError, ConfigError
from trtspec.runner import Process, Runner

TICK = 0.2
"""Seconds between two looks at a running step."""
_BREAKS = re.compile(r"[\r\n]+")


@dataclass(frozen=True)
class Step:
    """One program to run to its end. Steps of a sequence run one after the other, each only if the last ended well."""

    name: str
    """In words, such as `engine of the target`."""
    slug: str
    """For names of jobs and files."""
    command: tuple[str, ...]
    log: Path
    gpus: int
    timeout: float
    """Seconds it may run, waiting in a queue not counted."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment besides the surrounding one."""
    folders: tuple[Path, ...] = ()
    """Folders it reads or writes, which must be there wherever it runs."""


class StepFailed(BuildError):
    """A step did not end well. `return_code` is negative for a signal, None where it never ended."""

    def __init__(self, what: str, step: Step, *, return_code: int | None = None, fix: str | None = None) -> None:
        super().__init__(what, fix=fix or "read the log")
        self.step, self.return_code = step, return_code
        self.context["log"] = str(step.log)


class Watch(Protocol):
    """Whoever looks on while steps run. Calls come from the thread that runs them."""

    def line(self, step: Step, text: str) -> None:
        """The step printed a line."""

    def note(self, text: str) -> None:
        """Something to tell people."""

    def cancelled(self) -> bool:
        """True when the steps should be ended at once."""


class Launcher(Protocol):
    """Runs steps somewhere."""

    here: bool
    """Whether steps run on this machine, so that what is installed here counts."""

    def run(self, steps: Sequence[Step], watch: Watch) -> None:
        """Run all in order. StepFailed for the first that ends badly; MissingError without the cluster's tool."""


class Cancelled(BuildError):
    """The steps were ended because they were no longer wanted."""


def launcher_for(config: RunConfig, runner: Runner) -> Launcher:
    """The launcher of `engine.launcher`."""
    from trtspec.backends.launchers.kubernetes import KubernetesLauncher
    from trtspec.backends.launchers.local import LocalLauncher
    from trtspec.backends.launchers.slurm import SlurmLauncher

    if config.engine.launcher == "slurm":
        return SlurmLauncher(runner, config.engine.slurm)
    if config.engine.launcher == "kubernetes":
        return KubernetesLauncher(runner, config.engine.kubernetes, _image(config))
    return LocalLauncher(runner)


def _image(config: RunConfig) -> str:
    """The configured image, or the Triton container that the version is served in, too."""
    from trtspec.versions import DEFAULT, version

    if config.engine.kubernetes.image is not None:
        return config.engine.kubernetes.image
    wanted = version(config.engine.tensorrt_llm_version or DEFAULT)
    if wanted.image is None:
        raise ConfigError(f"no Triton container holds TensorRT-LLM {wanted}", where="engine.kubernetes.image",
                          fix="name an image that does")  # fmt: skip
    return wanted.image


class Follower:
    """Lines of a growing file, from where it ended when following began."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = path.stat().st_size if path.exists() else 0
        self._at = self.start
        self._rest = b""

    def lines(self, *, last: bool = False) -> list[str]:
        """New whole lines; a progress bar that rewrites its line gives one each. `last`: also what is unfinished."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        self._at += len(data)
        text = (self._rest + data).decode("utf-8", "replace") if last else None
        if text is None:
            end = max((self._rest + data).rfind(b"\n"), (self._rest + data).rfind(b"\r")) + 1
            whole, self._rest = (self._rest + data)[:end], (self._rest + data)[end:]
            text = whole.decode("utf-8", "replace")
        return [line for line in _BREAKS.split(text) if line.strip()]

    def all(self) -> list[str]:
        """Every line since following began."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                return [line for line in _BREAKS.split(file.read().decode("utf-8", "replace")) if line.strip()]
        except FileNotFoundError:
            return []


def follow(
    process: Process,
    step: Step,
    watch: Watch,
    *,
    deadline: float | None = None,
    end: Callable[[], object] | None = None,
) -> int:
    """Wait for a process while showing the step's log; its return code.

    At `deadline` (time.monotonic), when cancelled, or on any error, `end` (default: stop the process) is called first.
    """
    follower, stop = Follower(step.log), end or process.stop
    try:
        while True:
            try:
                code = process.wait(TICK)
            except TimeoutError:
                _show(follower, step, watch)
                if watch.cancelled():
                    raise Cancelled(f"{step.name}: ended, since it is not wanted any more") from None
                if deadline is not None and time.monotonic() > deadline:
                    raise StepFailed(
                        f"{step.name} did not end within {step.timeout:g} s", step, fix="raise engine.timeout"
                    ) from None
                continue
            _show(follower, step, watch, last=True)
            return code
    except BaseException:
        stop()
        raise


def _show(follower: Follower, step: Step, watch: Watch, *, last: bool = False) -> None:
    for line in follower.lines(last=last):
        watch.line(step, line)
