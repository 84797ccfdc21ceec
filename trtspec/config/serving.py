"""The Triton server of a pair: ports, time limits, and what its models are given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trtspec.config.parameters import ModelParameters
from trtspec.config.section import PositiveFloat, Role, Section

Port = Annotated[int, Field(ge=0, le=65535, strict=True)]


class Serving(Section):
    """The Triton server. Port 0 means any free port."""

    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback makes the server reachable by others."""
    http_port: Port = 8000
    """Triton's HTTP endpoint."""
    grpc_port: Port = 8001
    """Triton's gRPC endpoint, which `validate` uses."""
    metrics_port: Port = 8002
    """Prometheus metrics."""
    tritonserver: Path | None = None
    """The tritonserver program. Default: one on PATH or in /opt/tritonserver, else the nvidia-pytriton wheel's."""
    start_timeout: PositiveFloat = 180.0
    """Seconds until the server must be ready."""
    stop_timeout: PositiveFloat = 10.0
    """Seconds between SIGTERM and SIGKILL."""
    mode: Literal["auto", "orchestrator", "leader"] = "auto"
    """TensorRT engines: one server that starts a process per rank, or a server per rank (models of equal size)."""
    max_queue_size: Annotated[int, Field(ge=0, strict=True)] = 0
    """TensorRT engines: requests that may wait for each model before others are turned away; 0 is no limit."""
    max_queue_delay_us: Annotated[int, Field(ge=0, strict=True)] = 0
    """TensorRT engines: microseconds that a model waits for more requests before it takes a batch."""
    target_parameters: ModelParameters = ModelParameters()
    draft_parameters: ModelParameters = ModelParameters()

    def parameters(self, role: Role) -> ModelParameters:
        """Given parameters of one model."""
        return self.target_parameters if role == "target" else self.draft_parameters
