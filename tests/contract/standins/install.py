"""A folder that looks, to a program that searches PATH and package metadata, like a machine with TensorRT-LLM.

Everything in it is a STAND-IN: launchers of a few lines that call this package, and metadata without packages.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .build import build
from .convert import converter, quantize
from .program import Standin, run
from .smi import smi
from .table_scripts import CONVERTERS, QUANTIZE_FOLDER, folders
from .versions import known, tensorrt

_LAUNCHER = """#!{python}
# STAND-IN for {tool} of TensorRT-LLM {version}: it builds nothing.
import sys
sys.path.insert(0, {path!r})
from standins.install import main
sys.exit(main({tool!r}, {version!r}, {calls!r}, sys.argv[1:]))
"""


@dataclass(frozen=True)
class Installed:
    """The folders of one pretended installation."""

    root: Path
    version: str

    @property
    def bin(self) -> Path:
        """To be put on PATH."""
        return self.root / "bin"

    @property
    def site(self) -> Path:
        """To be put on PYTHONPATH, or on sys.path: metadata of `tensorrt_llm` and `tensorrt`."""
        return self.root / "site"

    @property
    def examples(self) -> Path:
        """The folder that has `examples`, as /app/tensorrt_llm in a container."""
        return self.root / "tensorrt_llm"

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Every call so far, oldest first: tool, version, arguments, cwd."""
        file = self.root / "calls.jsonl"
        return [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []

    def built(self) -> list[list[str]]:
        """Arguments of every call of trtllm-build that was more than a question."""
        calls = [call["arguments"] for call in self.calls if call["tool"] == "trtllm-build"]
        return [words for words in calls if words not in (["--help"], ["-h"], ["--version"])]

    def environment(self, **more: str) -> dict[str, str]:
        """This process's environment with the installation found first."""
        path = os.pathsep.join((str(self.bin), os.environ.get("PATH", "")))
        return {**os.environ, "PATH": path, "PYTHONPATH": str(self.site), **more}


def install(root: Path, version: str, *, gpus: bool = True, packages: Mapping[str, str] | None = None) -> Installed:
    """Write it all below `root`. `packages`: metadata of further packages, name → version."""
    made, calls = Installed(root, known(version)), str(root / "calls.jsonl")
    tools = {made.bin / "trtllm-build": "trtllm-build"}
    for model in CONVERTERS:
        for folder in folders(version, model):
            tools[made.examples / folder / "convert_checkpoint.py"] = f"convert:{model}"
    tools[made.examples / QUANTIZE_FOLDER / "quantize.py"] = "quantize"
    if gpus:
        tools[made.bin / "nvidia-smi"] = "nvidia-smi"
    for path, tool in tools.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_LAUNCHER.format(
            python=sys.executable, tool=tool, version=version, calls=calls, path=str(Path(__file__).parents[1])
        ))  # fmt: skip
        path.chmod(0o755)
    for name, release in {"tensorrt_llm": version, "tensorrt": tensorrt(version), **(packages or {})}.items():
        metadata = made.site / f"{name}-{release}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True, exist_ok=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {release}\nSummary: STAND-IN, no package\n")
    return made


def main(tool: str, version: str, calls: str, arguments: Sequence[str]) -> int:
    """What a launcher calls."""
    if tool == "nvidia-smi":
        return smi(arguments, os.environ)
    name, _, family = tool.partition(":")
    shown = "convert_checkpoint.py" if name == "convert" else "quantize.py" if name == "quantize" else name
    work = converter(family) if name == "convert" else quantize if name == "quantize" else build
    return run(Standin(shown, version, arguments, calls=Path(calls)), work)
