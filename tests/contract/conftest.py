"""The road walked once, pairs converted once for the whole folder, and machines with a stand-in installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.standins.install import Installed, install
from tests.contract.synthetic import CONFIGS, config_of, overrides, write_pair

Converted = Callable[[str], Path]
Machine = Callable[..., Installed]


@dataclass
class Road:
    """`trtspec build configs/llama70b.yaml` in a process of its own, with toy models and stand-ins, from nothing."""

    folder: Path
    machine: Installed
    given: list[str]
    done: subprocess.CompletedProcess[str]
    seconds: float

    def trtspec(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Another verb on the same configuration."""
        command = [sys.executable, "-m", "trtspec", verb, str(CONFIGS / "llama70b.yaml"), *self.given, *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.machine.environment(), capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Walked once; what it converted is used by other tests, too."""
    folder = tmp_path_factory.mktemp("road")
    write_pair(folder, "llama70b")
    given = [word for change in overrides(folder) for word in ("--set", change)]
    nothing = subprocess.CompletedProcess([], 0, "", "")
    made = Road(folder, install(folder / "machine", "1.2.1"), given, nothing, 0.0)
    began = time.monotonic()
    made.done = made.trtspec("build")
    made.seconds = time.monotonic() - began
    return made


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory, road: Road) -> Converted:
    """Configuration → folder with its pair and, in `engines`, both checkpoints as the configuration quantizes them."""
    made: dict[str, Path] = {"llama70b": road.folder}

    def convert(name: str) -> Path:
        if name not in made:
            from trtspec.workflows.build import build

            folder = tmp_path_factory.mktemp(f"pair-{name}")
            write_pair(folder, name)
            build(config_of(name, folder), until="convert", check=False)
            made[name] = folder
        return made[name]

    return convert


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Puts a stand-in installation of a release, and STANDIN_ settings, into this process's environment."""

    def put(version: str, **settings: str) -> Installed:
        # A folder of its own for each: what was detected is remembered by the path of the tool.
        made = install(tmp_path / f"machine{len(list(tmp_path.glob('machine*')))}", version)
        for name, value in {"PYTHONPATH": str(made.site), **settings}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", os.pathsep.join((str(made.bin), os.environ["PATH"])))
        return made

    return put


def linked(folder: Path, out: Path) -> None:
    """The checkpoints below folder/engines as they stand, at no cost, below out/engines."""
    ignore = shutil.ignore_patterns("engine", "engine.*", ".timing-cache", "*.lock")
    shutil.copytree(folder / "engines", out / "engines", copy_function=os.link, ignore=ignore)
