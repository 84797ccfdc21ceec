"""TensorRT-LLM's LLM API (PyTorch backend): no engine is built; the model folders are read as they are."""

from trtspec.backends.pytorch.builder import PyTorchBuilder, require_runtime
from trtspec.backends.pytorch.options import llm_options, require_possible, version_of

__all__ = ["PyTorchBuilder", "llm_options", "require_possible", "require_runtime", "version_of"]
