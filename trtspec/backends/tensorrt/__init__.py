"""TensorRT-LLM engines. This release plans for them and checks the machine; it does not build them yet."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from trtspec.backends.base import planned_limits
from trtspec.config import Role, RunConfig
from trtspec.errors import MissingError

SUPPORTED = "TensorRT-LLM 0.17 - 1.2.1"
CONTAINER = "nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3"
"""The newest Triton line that carries TensorRT-LLM 1.2.1, the last final release with engines."""


class TensorRTBuilder:
    """`require` always refuses: first for what the machine lacks, then because building comes with a later release."""

    name = "tensorrt"

    def require(self, config: RunConfig) -> None:
        """Raises MissingError, naming what is missing."""
        missing = [what for what, there in _installation() if not there]
        if missing:
            raise MissingError(
                "engines for `engine.backend: tensorrt` cannot be built on this machine",
                found=f"no {', no '.join(missing)}",
                expected=config.engine.tensorrt_llm_version or SUPPORTED,
                fix=f"building them arrives with a later release, for use inside {CONTAINER}; "
                "`engine.backend: reference` runs the same pipeline here",
            )
        raise MissingError(
            "this release of trtspec cannot build TensorRT engines yet",
            found="a TensorRT-LLM installation",
            expected="a later release of trtspec",
            fix="use `engine.backend: reference` until then",
        )

    def key_facts(self, config: RunConfig, role: Role) -> dict[str, object]:
        """The limits an engine would be built for."""
        return {"backend": self.name, **planned_limits(config, role)}

    def build(self, config: RunConfig, role: Role, checkpoint: Path, out: Path) -> None:  # noqa: ARG002
        """Always refuses, as `require` does."""
        self.require(config)


def _installation() -> list[tuple[str, bool]]:
    return [
        ("tensorrt_llm package", importlib.util.find_spec("tensorrt_llm") is not None),
        ("trtllm-build on PATH", shutil.which("trtllm-build") is not None),
        ("NVIDIA driver (nvidia-smi)", shutil.which("nvidia-smi") is not None),
    ]
