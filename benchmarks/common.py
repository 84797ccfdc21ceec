"""What the benchmarks share: the pair's engines, prompts, CPU clocks, and a table that states its conditions."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from trtspec.backends.reference import Request, Update
from trtspec.backends.reference.builder import ReferenceBuilder
from trtspec.backends.reference.worker import Worker
from trtspec.checkpoint.convert import convert
from trtspec.config import Role, RunConfig
from trtspec.config.validation import Dataset
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.prompts import load_prompts

ROOT = Path(__file__).resolve().parent.parent
PADDED_INTERMEDIATE = 65536
"""6 layers x 3 x 256 x 65536: about 300M parameters"""


@dataclass(frozen=True)
class Clock:
    """Seconds of one measured stretch."""

    cpu: float
    wall: float
    tokens: int

    @property
    def cpu_rate(self) -> float:
        """Tokens per CPU second of this process."""
        return self.tokens / self.cpu

    @property
    def wall_rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.wall


def measure(work: Callable[[], int]) -> Clock:
    """Time `work`, which returns how many tokens it made."""
    cpu, wall = time.process_time(), time.perf_counter()
    tokens = work()
    return Clock(time.process_time() - cpu, time.perf_counter() - wall, tokens)


def total(clocks: Sequence[Clock]) -> Clock:
    """One stretch made of many."""
    return Clock(sum(c.cpu for c in clocks), sum(c.wall for c in clocks), sum(c.tokens for c in clocks))


def arguments(what: str) -> argparse.ArgumentParser:
    """Options that every benchmark has."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--pair", nargs=2, type=Path, metavar=("TARGET", "DRAFT"), help="two Hugging Face folders")
    parser.add_argument("--prompts", type=Path, default=ROOT / "configs/tiny/prompts", help="a folder of .jsonl files")
    parser.add_argument("--repeat", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens per prompt")
    parser.add_argument("--count", type=int, default=24, help="prompts, spread over the domains")
    parser.set_defaults(pair=(ROOT / "configs/tiny/target", ROOT / "configs/tiny/draft"))
    return parser


def prompt_ids(folder: Path, model: Path, count: int, longest: int = 300) -> list[tuple[int, ...]]:
    """Token ids of `count` prompts, taken in turn from every domain."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    chat = ChatTemplate.read(model)
    domains = [
        [tuple(tokenizer.encode(p.text).ids) for p in load_prompts(_dataset(file), chat, 0, 64)]
        for file in sorted(folder.glob("*.jsonl"))
    ]
    rounds = [ids for together in zip(*domains, strict=False) for ids in together if 0 < len(ids) <= longest]
    if len(rounds) < count:
        raise SystemExit(f"only {len(rounds)} prompts of at most {longest} tokens in {folder}; asked for {count}")
    return rounds[:count]


def _dataset(file: Path) -> Dataset:
    return Dataset(path=file, domain=file.stem)


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="trtspec-bench-") as name:
        yield Path(name)


def build_engine(model: Path, role: Role, out: Path, dtype: str, padded: bool = False) -> Path:
    """Convert and build one engine below `out` by the road's own code; returns the engine folder."""
    config = RunConfig.model_validate(
        {
            "name": "bench",
            "pair": {"target": {"path": str(model)}, "draft": {"path": str(model)}},
            "engine": {"compute_dtype": dtype, "max_batch_size": 8},
        }
    )
    checkpoint, engine = out / f"{role}-checkpoint", out / f"{role}-engine"
    for folder in (checkpoint, engine):
        folder.mkdir(parents=True)
    convert(model, checkpoint)
    if padded:
        pad_ffn(checkpoint, PADDED_INTERMEDIATE)
    ReferenceBuilder().build(config, role, checkpoint, engine)
    return engine


def pad_ffn(checkpoint: Path, intermediate: int) -> None:
    """Widen every FFN to `intermediate`, keeping the function: rows added to fc and gate, zero columns to proj.

    The added rows repeat the real ones, so that the arithmetic on them is as real as its result is void.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    have = config["intermediate_size"]
    repeat = -(-intermediate // have)
    tensors = load_file(checkpoint / "rank0.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(("mlp.fc.weight", "mlp.gate.weight")):
            tensors[name] = tensor.repeat(repeat, 1)[:intermediate].contiguous()
        elif name.endswith("mlp.proj.weight"):
            tensors[name] = torch.nn.functional.pad(tensor, (0, intermediate - have))
    save_file(tensors, checkpoint / "rank0.safetensors")
    config["intermediate_size"] = intermediate
    (checkpoint / "config.json").write_text(json.dumps(config))


def run_all(engine: Worker[Any], requests: Sequence[Request]) -> int:
    """Submit all requests at once and wait for the last; returns the tokens made."""
    done = threading.Semaphore(0)
    made = [0]

    def take(update: Update) -> None:
        made[0] += len(update.new_ids)
        if update.finished:
            if update.error:
                print(update.error, file=sys.stderr)
            done.release()

    for request in requests:
        engine.submit(request, take)
    for _ in requests:
        done.acquire()
    return made[0]


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table under the conditions it was measured in."""
    print(f"\n### {title}\n")
    command = " ".join(["python -m", _module(), *sys.argv[1:]])
    print(f"`{command}`", conditions(), sep="  \n")
    print()
    for row in (header, ["---"] * len(header), *rows):
        print("| " + " | ".join(row) + " |")


def _module() -> str:
    return "benchmarks." + Path(sys.argv[0]).stem


def conditions() -> str:
    """Date, machine, versions, threads."""
    date = datetime.date.today().isoformat()
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "numpy"))
    return (
        f"{date}; {_cpu()}, {torch.get_num_threads()} torch thread(s); Python {platform.python_version()}, {versions}"
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        flags = next((line for line in lines if line.startswith("flags")), "")
        extra = ", ".join(name for name in ("amx_bf16", "avx512_bf16", "avx2") if f" {name}" in flags)
        return f"{len(names)} x {names[0]} ({extra})"
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
