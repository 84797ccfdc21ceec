"""Isolation for every test, and the versions that explain a log's skips."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import signal
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine may take any time for an example; a hang is what CI's own limit is for.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# A job in the background starts with these ignored, and tests of Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Before any test module imports torch: several processes share few cores in CI.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

PROJECT = Path(__file__).parent.parent


def pytest_report_header() -> str:
    """Versions of what decides which tests can run."""

    def found(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"{name} absent"

    packages = ("numpy", "tokenizers", "torch", "transformers", "nvidia-pytriton", "tritonclient", "tensorrt-llm")
    real = os.environ.get("TRTSPEC_REAL_DATA", "unset: tests of real tokenizers skip")
    return f"{platform.machine()}, {', '.join(map(found, packages))}, TRTSPEC_REAL_DATA {real}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with a reason, what this machine cannot run."""
    needs = {
        "torch": (importlib.util.find_spec("torch") is not None, "needs the `local` extra: torch"),
        "triton": (_has_triton(), "needs a Triton server: the `local` extra or an installed tritonserver"),
        "gpu": (importlib.util.find_spec("tensorrt_llm") is not None, "needs an NVIDIA GPU with TensorRT-LLM"),
    }
    for item in items:
        for mark, (here, reason) in needs.items():
            if item.get_closest_marker(mark) and not here:
                item.add_marker(pytest.mark.skip(reason=reason))


def _has_triton() -> bool:
    installed = shutil.which("tritonserver") or Path("/opt/tritonserver/bin/tritonserver").exists()
    return bool(installed) or importlib.util.find_spec("pytriton") is not None


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's caches or reads their overrides."""
    monkeypatch.setenv("TRTSPEC_CACHE", str(tmp_path_factory.mktemp("cache")))
    for name in [n for n in os.environ if n.startswith("TRTSPEC_SET_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def tiny_config() -> Path:
    """The shipped configuration of the tiny pair."""
    return PROJECT / "configs" / "tiny.yaml"
