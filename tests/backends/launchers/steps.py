"""Steps and a watcher for the tests of the launchers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trtspec.backends.launchers import Step


def step(folder: Path, name: str = "build", **changes: Any) -> Step:
    """A step that writes its log into `folder`."""
    given: dict[str, Any] = {
        "name": f"{name} of the target",
        "slug": f"pair-target-{name}",
        "command": ("trtllm-build", "--output_dir", str(folder / "out")),
        "log": folder / "engine.log",
        "gpus": 8,
        "timeout": 3600.0,
        "folders": (folder,),
    }
    return Step(**(given | changes))


@dataclass
class Seen:
    """A watcher that remembers."""

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stop: bool = False

    def line(self, step: Step, text: str) -> None:
        self.lines.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def cancelled(self) -> bool:
        return self.stop
