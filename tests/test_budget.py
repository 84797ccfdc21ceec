"""What `check` and `--help` may cost, as ratios of whole processes in one run (benchmarks/check.py)."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.check import CHECK, DRAFT, HELLO, HELP, LOADS_BOTH, MEMORY, TARGET, Cost, alternate, model

REAL = os.environ.get("TRTSPEC_REAL_DATA")
PROGRAM = [sys.executable, "-m", "trtspec"]


def ratio(ours: list[Cost], theirs: list[Cost]) -> float:
    return statistics.median(cost.cpu for cost in ours) / statistics.median(cost.cpu for cost in theirs)


def peak(command: list[str]) -> float:
    """Megabytes. Measured by a small process: a child's peak begins at the size of the one that starts it."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with real tokenizers")
def test_check_takes_a_fraction_of_loading_both_tokenizers(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(LOADS_BOTH)
    target, draft = (model(tmp_path, Path(str(REAL)) / "tokenizers", *given) for given in (TARGET, DRAFT))
    check = [*PROGRAM, "check", "--target", str(target), "--draft", str(draft)]
    ours, theirs = alternate(check, [sys.executable, tmp_path / "load.py", target, draft], repeat=3)
    assert ratio(ours, theirs) <= CHECK
    assert peak(check) <= MEMORY


def test_help_is_nearly_as_quick_as_a_program_without_verbs(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(HELLO)
    ours, theirs = alternate([*PROGRAM, "--help"], [sys.executable, tmp_path / "hello.py", "--help"], repeat=9)
    assert ratio(ours, theirs) <= HELP
