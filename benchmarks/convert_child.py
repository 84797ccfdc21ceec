"""One measurement of benchmarks/convert.py, in a process that imports nothing but what it measures.

`python -m benchmarks.convert_child WHAT MODEL OUT TENSOR` prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def convert_child(model: str, out: str, tensor: str) -> dict[str, float]:
    """Plan and write, then flush; seconds of each and peak memory."""
    from trtspec.checkpoint.convert import write_checkpoint
    from trtspec.checkpoint.plan import plan_conversion

    start = time.perf_counter()
    plan = plan_conversion(Path(model), tensor=int(tensor))
    write_checkpoint(plan, Path(out), durable=False)
    written = time.perf_counter()
    _flush(Path(out))
    return {"seconds": written - start, "flushed": time.perf_counter() - start, "peak": _peak()}


def scan_child(model: str, *_: str) -> dict[str, float]:
    """NaN scan alone."""
    from trtspec.checkpoint.convert import check_finite
    from trtspec.checkpoint.plan import plan_conversion

    plan = plan_conversion(Path(model))
    start = time.perf_counter()
    check_finite(plan)
    return {"seconds": time.perf_counter() - start, "peak": _peak()}


def hash_child(model: str, *_: str) -> dict[str, float]:
    """SHA-256 of the weight files, as the content key takes it."""
    from trtspec.hashing import HashMemo

    memo = HashMemo(Path(os.devnull))
    start = time.perf_counter()
    for path in sorted(Path(model).glob("*.safetensors")):
        memo.sha256(path)
    return {"seconds": time.perf_counter() - start, "peak": _peak()}


def copy_child(model: str, out: str, *_: str) -> dict[str, float]:
    """The same bytes by `cp`, then flushed."""
    start = time.perf_counter()
    subprocess.run(["cp", *(str(path) for path in sorted(Path(model).iterdir())), out], check=True)
    written = time.perf_counter()
    _flush(Path(out))
    return {"seconds": written - start, "flushed": time.perf_counter() - start, "peak": _peak()}


def modelopt_child(model: str, out: str, tensor: str) -> dict[str, float]:
    """Load with transformers and export with modelopt."""
    import torch
    from modelopt.torch.export import export_tensorrt_llm_checkpoint
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    start = time.perf_counter()
    with torch.inference_mode():
        export_tensorrt_llm_checkpoint(
            loaded, "llama", torch.bfloat16, export_dir=out,
            inference_tensor_parallel=int(tensor), inference_pipeline_parallel=1,
        )  # fmt: skip
    return {"seconds": time.perf_counter() - start, "peak": _peak()}


def nothing_child(*_: str) -> dict[str, float]:
    """The benchmark's own imports are not the converter's: a bare interpreter is measured without them."""
    return {"peak": _peak()}


CHILDREN: dict[str, Callable[..., dict[str, float]]] = {
    "convert": convert_child,
    "scan": scan_child,
    "hash": hash_child,
    "cp": copy_child,
    "modelopt": modelopt_child,
    "nothing": nothing_child,
}


def _flush(folder: Path) -> None:
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def _peak() -> float:
    """High-water mark of this process in MB. Not getrusage: that one is inherited from the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    print(json.dumps(CHILDREN[sys.argv[1]](*sys.argv[2:])))
