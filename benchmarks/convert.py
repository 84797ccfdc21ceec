"""The converter's speed against `cp` and against nvidia-modelopt's export, and its peak memory.

Each measurement is a process of its own: peak memory is the kernel's high-water mark of that process (VmHWM), less that
of a bare interpreter. Sides alternate, and every write starts with the old result removed and dirty pages flushed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_table, spread, workspace

ONE: dict[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
    "num_key_value_heads": 4, "vocab_size": 32000,
}  # fmt: skip
"""1.10B parameters (TinyLlama's sizes)."""
SEVEN: dict[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "vocab_size": 32000,
}  # fmt: skip
"""6.74B parameters (Llama 2 7B's sizes)."""
NOISE = np.random.default_rng(0).integers(0x3C00, 0x3D00, 1 << 22, dtype="<u2").tobytes()
"""Small finite bfloat16 values, written over and over."""
COPIES = (("cp", 1), ("convert", 1), ("convert", 2), ("scan", 1), ("nothing", 1))
MODELOPT = (("modelopt", 1), ("modelopt", 2))
"""(what, tensor size)"""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--seven", action="store_true", help="also the 7B-shaped model: needs 29 GB of disk")
    parser.add_argument("--no-modelopt", action="store_true", help="leave out modelopt's export")
    arguments = parser.parse_args()
    with workspace() as folder:
        write_model(folder / "1b", ONE, shards=4)
        jobs = [*COPIES, ("convert", 8), ("hash", 1), *(() if arguments.no_modelopt else MODELOPT)]
        report("1.1B bfloat16 in 4 shards (2.2 GB)", measure(folder / "1b", arguments.repeat, jobs))
        shutil.rmtree(folder / "1b")
        if arguments.seven:
            write_model(folder / "7b", SEVEN, shards=8)
            report("7B-shaped bfloat16 in 8 shards (13.5 GB)", measure(folder / "7b", 1, COPIES))


def write_model(folder: Path, sizes: dict[str, Any], shards: int) -> None:
    """A Llama of these sizes in Hugging Face layout; tensors dealt out to the shards in turn."""
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048, "tie_word_embeddings": False, **sizes,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shapes = dict(_shapes(sizes))
    names: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        held = sorted(shapes)[shard::shards]
        _write_shard(folder / file, {name: shapes[name] for name in held})
        names |= dict.fromkeys(held, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def _shapes(sizes: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    h, inner, vocab = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
    kv = h // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    yield from (("model.embed_tokens.weight", (vocab, h)), ("lm_head.weight", (vocab, h)), ("model.norm.weight", (h,)))
    for i in range(sizes["num_hidden_layers"]):
        layer = {
            "self_attn.q_proj": (h, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, h), "mlp.gate_proj": (inner, h), "mlp.up_proj": (inner, h),
            "mlp.down_proj": (h, inner), "input_layernorm": (h,), "post_attention_layernorm": (h,),
        }  # fmt: skip
        yield from ((f"model.layers.{i}.{name}.weight", shape) for name, shape in layer.items())


def _write_shard(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        end = at + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for begin in range(0, at, len(NOISE)):
            file.write(NOISE[: min(len(NOISE), at - begin)])


def run(what: str, model: Path, tensor: int = 1) -> dict[str, float]:
    """One measurement in a fresh process and a fresh folder; `whole` is the process from start to end."""
    out = model.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    os.sync()
    command = [sys.executable, "-m", "benchmarks.convert_child", what, str(model), str(out), str(tensor)]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    whole = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    return {**json.loads(done.stdout.splitlines()[-1]), "whole": whole}


def measure(model: Path, repeat: int, jobs: Sequence[tuple[str, int]]) -> dict[str, list[dict[str, float]]]:
    """All jobs, in turn, `repeat` times."""
    found: dict[str, list[dict[str, float]]] = {f"{what} {tensor}": [] for what, tensor in jobs}
    for _ in range(repeat):
        for what, tensor in jobs:
            found[f"{what} {tensor}"].append(run(what, model, tensor))
    shutil.rmtree(model.parent / "out", ignore_errors=True)
    return found


def report(title: str, found: dict[str, list[dict[str, float]]]) -> None:
    """One row for each measurement, its ratio to `cp` and to modelopt's whole process."""
    rows = []
    for job, runs in found.items():
        if job == "nothing 1":
            continue
        rows.append(
            [
                job,
                _spread(runs, "seconds"),
                _ratio(runs, found["cp 1"], "seconds"),
                _ratio(runs, found["cp 1"], "flushed"),
                _spread(runs, "whole"),
                _inverse(runs, found.get(f"modelopt {job.removeprefix('convert ')}", []), "whole"),
                f"{max(r['peak'] for r in runs) - min(r['peak'] for r in found['nothing 1']):.0f}",
            ]
        )
    header = ["what, tensor size", "s", "÷ cp", "÷ cp, both flushed", "whole process s", "modelopt ÷ it", "MB at most"]
    print_table(title, header, rows)


def _spread(runs: Sequence[dict[str, float]], key: str) -> str:
    return spread([r[key] for r in runs if key in r]) if any(key in r for r in runs) else "-"


def _ratio(runs: Sequence[dict[str, float]], base: Sequence[dict[str, float]], key: str) -> str:
    values = [r[key] / b[key] for r, b in zip(runs, base, strict=True) if key in r]
    return spread(values) if values else "-"


def _inverse(runs: Sequence[dict[str, float]], base: Sequence[dict[str, float]], key: str) -> str:
    values = [b[key] / r[key] for r, b in zip(runs, base, strict=False)]
    return f"{statistics.median(values):.2f}" if values else "-"


if __name__ == "__main__":
    main()
