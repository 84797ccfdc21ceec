"""What the rules on a repository look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trtspec.config import ROLES, Role
from trtspec.triton import pbtxt, pipeline
from trtspec.triton.lint.engine import Engine

FOLDERS: Mapping[Role, str] = {"target": pipeline.TARGET, "draft": pipeline.DRAFT}
_TRUE = ("true", "1")


@dataclass(frozen=True)
class Seen:
    """A repository whose configs could all be read. An engine that could not be read is not in `engines`."""

    repository: Path
    configs: Mapping[str, Any]
    engines: Mapping[Role, Engine]
    launch: Mapping[str, Any] | None
    """launch.json; None where there is none."""

    @cached_property
    def given(self) -> dict[str, dict[str, str]]:
        """Parameters of each model; an unfilled placeholder counts as not given, as TensorRT-LLM's backend reads it."""
        return {
            name: {k: v for k, v in pbtxt.parameters(config).items() if v and not v.startswith("${")}
            for name, config in self.configs.items()
        }

    @property
    def tensorrt(self) -> bool:
        """The LLM models run TensorRT engines."""
        return bool(self.configs[pipeline.TARGET].backend != "python")

    @property
    def fused(self) -> bool:
        """The BLS holds both engines."""
        return self.given[pipeline.BLS].get("pipeline") == "fused"

    @property
    def logits(self) -> bool:
        """Requests use logits acceptance unless they say otherwise."""
        return self.flag(pipeline.BLS, "default_use_draft_logits")

    @property
    def fast_logits(self) -> bool:
        """Either model asks for fast logits."""
        return any(self.flag(FOLDERS[role], "speculative_decoding_fast_logits") for role in ROLES)

    def flag(self, model: str, name: str, default: bool = False) -> bool:
        """A parameter as the backend reads it."""
        value = self.given.get(model, {}).get(name)
        return default if value is None else value.lower() in _TRUE

    def number(self, model: str, name: str) -> int | None:
        """A whole number; None where there is none."""
        value = self.given[model].get(name, "")
        return int(value) if value.lstrip("-").isdigit() else None

    def fraction(self, model: str, name: str) -> float | None:
        """A number; None where there is none."""
        try:
            return float(self.given[model][name])
        except (KeyError, ValueError):
            return None

    def ids(self, model: str, name: str) -> tuple[int, ...]:
        """Numbers separated by commas; of several instances (`;`) the first one's."""
        words = self.given[model].get(name, "").split(";")[0].split(",")
        return tuple(int(word) for word in words if word.strip().isdigit())

    def pairs(self) -> Iterator[tuple[Role, str, Engine | None]]:
        """Role, model folder and engine, the target first; without a draft that has no folder."""
        for role in ROLES[::-1]:
            if FOLDERS[role] in self.configs:
                yield role, FOLDERS[role], self.engines.get(role)
