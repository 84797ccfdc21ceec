"""Engines: how they are built (base, tensorrt, pytorch, reference) and the CPU one that also runs them (reference)."""

from trtspec.backends.base import EngineBuilder, builder_for

__all__ = ["EngineBuilder", "builder_for"]
