"""What a model family must say so that its checkpoints can be converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trtspec.checkpoint.facts import ModelFacts

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A Hugging Face tensor and the shape that config.json implies for it."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Rule:
    """A TensorRT-LLM tensor: its parts laid row after row (dimension 0), in this order."""

    name: str
    parts: tuple[Part, ...]

    @property
    def shape(self) -> Shape:
        """Shape of the result: the parts' rows added up."""
        rows = sum(part.shape[0] for part in self.parts)
        return (rows, *self.parts[0].shape[1:])


@dataclass(frozen=True)
class Family:
    """One family: which architectures, which tensors, which settings."""

    name: str
    architectures: tuple[str, ...]
    rules: Callable[[ModelFacts], tuple[Rule, ...]]
    """Every tensor the checkpoint gets, in file order."""
    settings: Callable[[ModelFacts], Mapping[str, Any]]
    """The family's part of the checkpoint's config.json; ModelFileError for a setting it cannot express."""
    ignorable: Callable[[str], bool]
    """Names that may stay behind because they are computed, not learned."""
