"""TensorRT engines of TensorRT-LLM 0.17 - 1.2.1, built with `trtllm-build`."""

from __future__ import annotations

from trtspec.backends.tensorrt.builder import TensorRTBuilder
from trtspec.backends.tensorrt.commands import build_command

__all__ = ["TensorRTBuilder", "build_command"]
