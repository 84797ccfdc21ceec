"""What was found on a machine. Plain values; every part may be missing, and a probe says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("tensorrt-llm", "tensorrt", "nvidia-modelopt", "torch", "transformers", "nvidia-pytriton", "numpy")
"""Packages whose versions matter, as PyPI names them."""


@dataclass(frozen=True)
class Probe:
    """One program that was asked. `problem` is empty when it answered."""

    name: str
    command: tuple[str, ...]
    answered: bool
    problem: str
    seconds: float


@dataclass(frozen=True)
class DetectedGpu:
    """One GPU as the driver reports it."""

    index: int
    name: str
    sm: int | None
    """Compute capability × 10; None where the driver is too old to say."""
    memory_bytes: int | None
    mig: bool
    """Cut into instances: the whole GPU cannot be used as one."""
    kind: str | None
    """Its name in `hardware.gpu`; None for one that is not in the table."""


@dataclass(frozen=True)
class Image:
    """The container image that this runs in, as far as its environment tells."""

    kind: str
    """`triton`, `tensorrt-llm`, or `other`."""
    tag: str | None
    """Such as 26.05; None if it does not say."""
    triton_version: str | None
    tensorrt_llm: str | None
    """What an image of this tag holds by the version table, or what the environment says."""
    tensorrt: str | None
    source: str


@dataclass(frozen=True)
class Server:
    """A tritonserver program."""

    path: Path
    kind: str
    """`installed`, or `wheel` for nvidia-pytriton's."""
    tensorrtllm_backend: bool
    """Whether the backend that loads engines is beside it."""


@dataclass(frozen=True)
class Installed:
    """TensorRT-LLM and who said so."""

    version: str
    source: str


@dataclass(frozen=True)
class Environment:
    """A machine. Bytes; None where unknown or absent."""

    python: str
    system: str
    cpus: int
    packages: Mapping[str, str | None]
    """Of this interpreter, or of the interpreter of trtllm-build where this one has none."""
    tools: Mapping[str, Path | None]
    tensorrt_llm: Installed | None
    tool_flags: tuple[str, ...] | None
    """Arguments that the installed trtllm-build names in its --help; None where it was not asked."""
    driver: str | None
    gpus: tuple[DetectedGpu, ...]
    image: Image | None
    server: Server | None
    examples: Path | None
    """TensorRT-LLM's examples, with converters and the quantizer."""
    disk_free: int | None
    probes: tuple[Probe, ...]

    @property
    def tensorrt(self) -> str | None:
        """TensorRT's version, as its package or the image says."""
        return self.packages.get("tensorrt") or (self.image.tensorrt if self.image else None)

    @property
    def modelopt(self) -> str | None:
        """nvidia-modelopt's version."""
        return self.packages.get("nvidia-modelopt")

    @property
    def torch(self) -> str | None:
        """torch's version."""
        return self.packages.get("torch")

    @property
    def sm(self) -> int | None:
        """The compute capability × 10 that all GPUs have; None without GPUs or where they differ."""
        found = {gpu.sm for gpu in self.gpus}
        return found.pop() if len(found) == 1 else None

    def as_dict(self) -> dict[str, Any]:
        """JSON values, for `--json` and for records."""
        document = asdict(self)
        document["packages"], document["tools"] = dict(self.packages), _paths(self.tools)
        document |= {"tensorrt": self.tensorrt, "sm": self.sm, "examples": _path(self.examples)}
        if self.server is not None:
            document["server"]["path"] = str(self.server.path)
        return document


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _paths(paths: Mapping[str, Path | None]) -> dict[str, str | None]:
    return {name: _path(path) for name, path in paths.items()}
