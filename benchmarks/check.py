"""`trtspec check` and `trtspec --help` as whole processes, against what a script without trtspec would take.

Alternating runs in one go: a check of two models with Llama-3 tokenizers against a script that only loads both with
`AutoTokenizer`; `--help` against a Click program that says hello. CPU seconds are those of the process and its
children, because wall time says little on a shared machine; the wall ratio stands beside. Peak memory is the
largest resident size of any of these processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trtspec.checkpoint.known import known

TARGET = ("llama3", "meta-llama/Meta-Llama-3-70B")
DRAFT = ("llama3_1", "meta-llama/Llama-3.2-1B-Instruct")
LOADS_BOTH = (
    "import sys\nfrom transformers import AutoTokenizer\n"
    "for folder in sys.argv[1:]: AutoTokenizer.from_pretrained(folder)\n"
)
HELLO = 'import click\n@click.command()\ndef hello():\n    """Hello."""\n    click.echo("hello")\nhello()\n'
CHECK, HELP, MEMORY = 0.4, 1.6, 500
"""Ceilings: ratio, ratio, megabytes."""


@dataclass(frozen=True)
class Cost:
    """One process: CPU and wall seconds, peak memory in megabytes."""

    cpu: float
    wall: float
    peak: float


def run(command: Sequence[str | Path]) -> Cost:
    """Run to the end, output thrown away. Exit 1 is a verdict of `check`, not a failure."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if process.returncode not in (0, 1):
        raise SystemExit(f"{command[0]} exits with {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024)


def alternate(one: Sequence[str | Path], other: Sequence[str | Path], repeat: int) -> tuple[list[Cost], list[Cost]]:
    """Costs of both, run in turn; the first run of each fills the file cache and is thrown away."""
    pairs = [(run(one), run(other)) for _ in range(repeat + 1)][1:]
    return [a for a, _ in pairs], [b for _, b in pairs]


def model(folder: Path, tokenizers: Path, name: str, hub_id: str) -> Path:
    """A folder with the files of a real tokenizer and the published config.json of a model."""
    found = known(hub_id)
    if found is None:
        raise SystemExit(f"{hub_id} is not among the known models")
    shutil.copytree(tokenizers / name, folder / name)
    (folder / name / "config.json").write_text(json.dumps(dict(found.config)))
    return folder / name


def row(what: str, ours: list[Cost], baseline: str, theirs: list[Cost], ceiling: float) -> list[str]:
    """A table row: medians, and the ratio of medians with the range of the ratios run by run."""
    cpu, wall = (statistics.median(getattr(c, k) for c in ours) / statistics.median(getattr(c, k) for c in theirs)
                 for k in ("cpu", "wall"))  # fmt: skip
    each = sorted(a.cpu / b.cpu for a, b in zip(ours, theirs, strict=True))
    seconds = [f"{statistics.median(c.cpu for c in costs):.3f} s" for costs in (ours, theirs)]
    peak = f"{max(c.peak for c in ours):.0f} MB (baseline {max(c.peak for c in theirs):.0f})"
    ratio = f"{cpu:.2f} ({each[0]:.2f}-{each[-1]:.2f}), wall {wall:.2f}"
    return [f"{what}: {seconds[0]}", f"{baseline}: {seconds[1]}", ratio, f"{ceiling}", peak]


def main() -> None:
    """Print the table. Needs the `local` extra, and TRTSPEC_REAL_DATA for the tokenizers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9, help="alternating runs")
    args = parser.parse_args()
    data = os.environ.get("TRTSPEC_REAL_DATA")
    if data is None:
        raise SystemExit("TRTSPEC_REAL_DATA must name the folder with the real tokenizers")
    program = Path(sys.executable).with_name("trtspec")
    with tempfile.TemporaryDirectory(prefix="trtspec-bench-") as name:
        folder = Path(name)
        (folder / "load.py").write_text(LOADS_BOTH)
        (folder / "hello.py").write_text(HELLO)
        target, draft = (model(folder, Path(data) / "tokenizers", *given) for given in (TARGET, DRAFT))
        check = alternate(
            [program, "check", "--target", target, "--draft", draft],
            [sys.executable, folder / "load.py", target, draft],
            args.repeat,
        )
        help_ = alternate([program, "--help"], [sys.executable, folder / "hello.py", "--help"], 3 * args.repeat)
    # Only now: a child's peak includes what this process had when it was started, and torch is large.
    from benchmarks.common import print_table

    rows = [
        row("`check`, Llama-3 70B and 3.2 1B", check[0], "AutoTokenizer of both", check[1], CHECK),
        row("`--help`", help_[0], "Click hello", help_[1], HELP),
    ]
    print_table("Whole processes", ("what", "baseline", "ratio (CPU)", f"ceiling; {MEMORY} MB", "peak memory"), rows)


if __name__ == "__main__":
    main()
