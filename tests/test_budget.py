"""What `check` may take of memory. Its time is a benchmark (benchmarks/check.py), not a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.check import DRAFT, MEMORY, TARGET, model

REAL = os.environ.get("TRTSPEC_REAL_DATA")
PROGRAM = [sys.executable, "-m", "trtspec"]


def peak(command: list[str]) -> float:
    """Megabytes. Measured by a small process: a child's peak begins at the size of the one that starts it."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with real tokenizers")
def test_check_of_two_large_tokenizers_stays_small(tmp_path: Path) -> None:
    target, draft = (model(tmp_path, Path(str(REAL)) / "tokenizers", *given) for given in (TARGET, DRAFT))
    assert peak([*PROGRAM, "check", "--target", str(target), "--draft", str(draft)]) <= MEMORY
