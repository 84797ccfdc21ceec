"""What all STAND-IN programs share: who they are, their log lines, the record of their calls, their exit codes."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .faults import Fault
from .versions import LABEL, generations

STAMP = "[01/01/2000-00:00:00]"
"""In the place of a time, so that equal calls print equal lines."""


@dataclass
class Standin:
    """One call of one program."""

    tool: str
    version: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    generation: str = ""
    calls: Path | None = None
    """File that gets one JSON line per call, before anything else happens."""

    def __post_init__(self) -> None:
        self.generation = self.environment.get("STANDIN_GENERATION", self.generation)
        if self.generation not in generations(self.version):
            self.generation = generations(self.version)[0]
        self.fault = Fault(self.environment, self.arguments)

    @property
    def sm(self) -> int:
        """Compute capability of the pretended GPU, times ten."""
        return int(self.environment.get("STANDIN_SM", "90"))

    @property
    def gpus(self) -> int:
        """How many of them this process may use."""
        count, visible = int(self.environment.get("STANDIN_GPUS", "8")), self.environment.get("CUDA_VISIBLE_DEVICES")
        return count if visible is None else min(count, len([word for word in visible.split(",") if word.strip()]))

    def say(self, severity: str, text: str) -> None:
        """A line in the shape of the real log."""
        print(f"{STAMP} [TRT-LLM] [{severity}] {text}", flush=True)


def run(standin: Standin, work: Callable[[Standin], int]) -> int:
    """Record the call, do the work, turn what goes wrong into a traceback and exit code 1 as Python does."""
    if standin.calls is not None:
        with standin.calls.open("a", encoding="utf-8") as sink:
            record = {"tool": standin.tool, "version": standin.version, "arguments": list(standin.arguments)}
            sink.write(json.dumps(record | {"cwd": str(Path.cwd())}) + "\n")
    print(f"[TensorRT-LLM] TensorRT-LLM version: {standin.version}")
    print(f"{LABEL} by this {standin.tool}, which imitates TensorRT-LLM {standin.version}", flush=True)
    try:
        code = work(standin)
    except (OSError, RuntimeError, NotImplementedError, KeyError, TypeError) as error:
        # The text of a real program's last line; what stands above it is this file's own stack.
        print("Traceback (most recent call last):", file=sys.stderr)
        print("".join(traceback.format_tb(error.__traceback__, limit=-2)), end="", file=sys.stderr)
        name = "RuntimeError" if isinstance(error, RuntimeError) else type(error).__name__
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return 1
    print(LABEL, flush=True)
    return code
