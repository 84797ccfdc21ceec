"""The seam to the machine: all that detection asks of it goes through a :class:`Host`, so that tests make one."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trtspec.environment.model import Probe
from trtspec.errors import MissingError, TrtspecError
from trtspec.runner import Runner, SubprocessRunner


def installed_version(package: str) -> str | None:
    """Version of a package of this interpreter from its metadata; nothing is imported."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@dataclass
class Host:
    """This machine by default. `root` stands for / wherever fixed places are looked for."""

    runner: Runner = field(default_factory=SubprocessRunner)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")
    package: Callable[[str], str | None] = installed_version
    disk_free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    python: str = platform.python_version()
    interpreter: Path = Path(sys.executable)
    system: str = f"{platform.system()} {platform.machine()}"
    cpus: int = os.cpu_count() or 1
    probes: list[Probe] = field(default_factory=list)

    def which(self, program: str) -> Path | None:
        """A program on PATH."""
        found = shutil.which(program, path=self.environ.get("PATH", ""))
        return Path(found) if found else None

    def place(self, path: str) -> Path | None:
        """A fixed place, if it exists."""
        found = self.root / path.lstrip("/")
        return found if found.exists() else None

    def text(self, path: str) -> str | None:
        """The text of a small file at a fixed place; None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def ask(self, name: str, command: Sequence[str | Path], timeout: float) -> str | None:
        """Output of a program that ends well within `timeout` seconds; else None, and the reason among `probes`."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="trtspec-probe-") as folder:
            log = Path(folder) / "probe.log"
            try:
                self.runner.run(command, log=log, timeout=timeout, environment=self.environ, error=MissingError)
                output, problem = _output(log), None
            except (TrtspecError, OSError) as error:
                output, problem = None, _reason(error, log)
        seconds = round(time.monotonic() - began, 3)
        self.probes.append(Probe(name, tuple(map(str, command)), problem is None, problem or "", seconds))
        return output


def _output(log: Path) -> str:
    """What the program said: the log without the runner's line `$ command`."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return "\n".join(line for line in text.splitlines() if not line.startswith("$ "))


def _reason(error: Exception, log: Path) -> str:
    said = [line.strip() for line in _output(log).splitlines() if line.strip()]
    what = error.what if isinstance(error, TrtspecError) else str(error)
    first = what.splitlines()[0] if what else type(error).__name__
    return f"{first}: {said[-1]}" if said and said[-1] not in what else first
