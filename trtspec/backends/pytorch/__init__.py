"""TensorRT-LLM's LLM API (PyTorch backend). It needs no engine; this release does not prepare its models yet."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from trtspec.backends.base import planned_limits
from trtspec.config import Role, RunConfig
from trtspec.errors import MissingError


class PyTorchBuilder:
    """`require` always refuses: this backend comes with a later release."""

    name = "pytorch"

    def require(self, config: RunConfig) -> None:
        """Raises MissingError, naming what is missing."""
        missing = []
        if importlib.util.find_spec("tensorrt_llm") is None:
            missing.append("tensorrt_llm package")
        if shutil.which("nvidia-smi") is None:
            missing.append("NVIDIA driver (nvidia-smi)")
        wanted = config.engine.tensorrt_llm_version or "TensorRT-LLM 1.0 or newer"
        raise MissingError(
            "`engine.backend: pytorch` cannot be prepared",
            found=f"no {', no '.join(missing)}" if missing else "a TensorRT-LLM installation",
            expected=wanted if missing else "a later release of trtspec",
            fix="this backend arrives with a later release; `engine.backend: reference` runs the same pipeline here",
        )

    def key_facts(self, config: RunConfig, role: Role) -> dict[str, object]:
        """The limits the LLM API would be given."""
        return {"backend": self.name, **planned_limits(config, role)}

    def build(self, config: RunConfig, role: Role, checkpoint: Path, out: Path) -> None:  # noqa: ARG002
        """Always refuses, as `require` does."""
        self.require(config)
