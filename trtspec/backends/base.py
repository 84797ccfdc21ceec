"""What an engine builder is, and which one a configuration asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from trtspec.config import Role, RunConfig


class Watcher(Protocol):
    """Whoever looks on while engines are built. Calls may come from several threads."""

    def note(self, text: str) -> None:
        """One line of news."""

    def progress(self, title: str, done: int, total: int) -> None:
        """`done` of `total` of the work named `title`; equal numbers end it."""

    def cancelled(self) -> bool:
        """True when builds should be ended at once."""


class Unwatched:
    """Nobody looks on."""

    def note(self, text: str) -> None:
        """Ignored."""

    def progress(self, title: str, done: int, total: int) -> None:
        """Ignored."""

    def cancelled(self) -> bool:
        """Never."""
        return False


class EngineBuilder(Protocol):
    """Turns one role's checkpoint into an engine folder."""

    name: str

    def require(self, config: RunConfig) -> None:
        """Raises MissingError when this machine cannot build; ConfigError when no machine could."""

    def key_facts(self, config: RunConfig, role: Role) -> dict[str, object]:
        """Everything besides the checkpoint that the engine depends on; JSON values, part of its content key."""

    def build(self, config: RunConfig, role: Role, checkpoint: Path, out: Path) -> None:
        """Write the engine into the existing empty folder `out`. Raises BuildError."""


def planned_limits(config: RunConfig, role: Role) -> dict[str, object]:
    """What a TensorRT-LLM engine or LLM of `role` would be built for."""
    return {
        "tensorrt_llm": config.engine.tensorrt_llm_version,
        "max_batch_size": config.engine.max_batch_size,
        "max_input_len": config.engine.max_input_len,
        "max_seq_len": config.engine.max_seq_len,
        "max_draft_len": config.speculation.max_draft_len if role == "target" else 0,
    }


def builder_for(config: RunConfig, watcher: Watcher | None = None) -> EngineBuilder:
    """The builder of `engine.backend`."""
    backend = config.engine.backend
    if backend == "tensorrt":
        from trtspec.backends.tensorrt import TensorRTBuilder

        return TensorRTBuilder(watcher=watcher or Unwatched())
    if backend == "pytorch":
        from trtspec.backends.pytorch import PyTorchBuilder

        return PyTorchBuilder()
    from trtspec.backends.reference.builder import ReferenceBuilder

    return ReferenceBuilder()
