"""Run on a cluster's node before a build: is this the TensorRT-LLM, the TensorRT and the GPU that were planned for?

`python3 probe.py --tensorrt-llm 1.2.1 --tensorrt 10.14 --sm 90`, with the standard library only. Prints one line
`trtspec-probe: {…}` of what is there, and exits 1 with a sentence for each thing that is another.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator


def main() -> int:
    """Ask, print, compare."""
    parser = argparse.ArgumentParser()
    for name in ("--tensorrt-llm", "--tensorrt", "--sm"):
        parser.add_argument(name, default="")
    parser.add_argument("--tool", default="trtllm-build")
    wanted = parser.parse_args()
    gpus = _gpus()
    capabilities = sorted({capability for _, capability in gpus})
    found: dict[str, object] = {
        "tensorrt_llm": _version("tensorrt-llm", "tensorrt_llm"),
        "tensorrt": _version("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
        "sm": capabilities,
        "gpus": [name for name, _ in gpus],
    }
    print(f"trtspec-probe: {json.dumps(found)}", flush=True)
    problems = list(_problems(wanted, found, capabilities))
    for problem in problems:
        print(f"trtspec-probe: {problem}", flush=True)
    return 1 if problems else 0


def _problems(wanted: argparse.Namespace, found: dict[str, object], capabilities: list[str]) -> Iterator[str]:
    llm, trt = str(found["tensorrt_llm"]), str(found["tensorrt"])
    if wanted.tensorrt_llm and llm and _release(llm) != _release(wanted.tensorrt_llm):
        yield f"this node has TensorRT-LLM {llm}, the engine was planned for {wanted.tensorrt_llm}"
    if wanted.tensorrt and trt and not f"{trt}.".startswith(f"{wanted.tensorrt}."):
        yield f"this node has TensorRT {trt}, the engine was planned for {wanted.tensorrt}"
    if wanted.sm and [each for each in capabilities if each != wanted.sm]:
        yield f"this node's GPUs are SM {', '.join(capabilities)}, the engine was planned for SM {wanted.sm}"
    if not capabilities:
        yield "no GPU can be seen on this node"
    if not shutil.which(wanted.tool):
        yield f"there is no {wanted.tool} here"


def _release(version: str) -> str:
    return version.split("+")[0].split(".post")[0]


def _version(*names: str) -> str:
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _gpus() -> list[tuple[str, str]]:
    """(name, compute capability without its dot) of each GPU."""
    command = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.rpartition(",") for line in text.splitlines() if "," in line]
    return [(name.strip(), capability.strip().replace(".", "")) for name, _, capability in rows]


if __name__ == "__main__":
    sys.exit(main())
