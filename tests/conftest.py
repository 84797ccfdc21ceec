"""Isolation for every test, and the versions that explain a log's skips."""

from __future__ import annotations

import importlib.util
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

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
        "triton": (importlib.util.find_spec("pytriton") is not None, "needs a Triton server: the `local` extra"),
        "gpu": (importlib.util.find_spec("tensorrt_llm") is not None, "needs an NVIDIA GPU with TensorRT-LLM"),
    }
    for item in items:
        for mark, (here, reason) in needs.items():
            if mark in item.keywords and not here:
                item.add_marker(pytest.mark.skip(reason=reason))


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
