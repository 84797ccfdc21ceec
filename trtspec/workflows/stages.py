"""The stages of a build as values: where each result goes and everything it depends on.

Keys are chained: checkpoint ← source files; engine ← checkpoint key; repository ← both engine keys. So a change
rebuilds only what follows it, and only the role it touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trtspec.config import ROLES, Role, RunConfig
from trtspec.hashing import HashMemo
from trtspec.store import Stage
from trtspec.workflows import llmapi

if TYPE_CHECKING:
    from trtspec.workflows.recipe import Recipe

_WEIGHTS = ("config.json", "*.safetensors", "*.safetensors.index.json")
_WORDS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)


@dataclass(frozen=True)
class Stages:
    """All stages of one configuration, given where its model folders are."""

    config: RunConfig
    sources: dict[Role, Path]
    memo: HashMemo

    @property
    def native(self) -> bool:
        """Whether Hugging Face folders are served (`backend: pytorch`) and nothing is converted."""
        return self.config.engine.backend == "pytorch"

    @cached_property
    def check(self) -> Stage:
        """engines/<name>/check: the verdict on the pair."""
        inputs = {
            "stage": "check",
            "format": 1,
            "files": {r: self._hashes(r, _WEIGHTS + _WORDS) for r in ROLES},
            "settings": self.config.model_dump(
                mode="json", include={"checks", "speculation", "engine", "hardware", "pair"}
            ),
        }
        return Stage("check", self.config.output.engines / self.config.name / "check", inputs)

    def checkpoint(self, role: Role) -> Stage:
        """engines/<name>/<role>/checkpoint: TensorRT-LLM format, quantized or not."""
        if self.native:
            return llmapi.model_stage(self, role)
        return self.recipe(role).stage(self.config.checkpoint_dir(role), self.memo)

    def calibration(self, role: Role) -> Stage | None:
        """engines/<name>/<role>/calibration: what activations were seen; None where no scale comes from them."""
        return None if self.native else self.recipe(role).calibration_stage(self.memo)

    def recipe(self, role: Role) -> Recipe:
        """How the checkpoint of `role` is made."""
        from trtspec.workflows.recipe import Recipe

        model = self.config.pair[role]
        return Recipe(
            model=self.sources[role],
            quantization=model.quantization,
            calibration=self.config.output.engines / self.config.name / role / "calibration",
            prompts=tuple(dataset.path for dataset in self.config.validation.datasets),
            dtype=model.dtype,
            tensor=model.parallelism.tensor,
            pipeline=model.parallelism.pipeline,
            tensorrt_llm_version=self.config.engine.tensorrt_llm_version,
            python=self.config.tools.modelopt_python,
            title=f" of the {role}",
        )

    def engine(self, role: Role) -> Stage:
        """engines/<name>/<role>/engine: what the backend runs."""
        from trtspec.backends.base import builder_for

        inputs = {
            "stage": "engine",
            "checkpoint": self.checkpoint(role).key,
            "engine settings": builder_for(self.config).key_facts(self.config, role),
        }
        return Stage(f"engine of the {role}", self.config.engine_dir(role), inputs)

    def repository(self) -> Stage:
        """model_repo/<name>: the Triton model repository. The policy file may change after it is published."""
        from trtspec.triton.repository import POLICY_FILE, key_facts, plan_for

        if self.native:
            return self._llmapi_repository()
        inputs = {
            "stage": "repository",
            "engines": {role: self.engine(role).key for role in ROLES},
            "tokenizer": self._hashes("target", _WORDS),
            "pipeline settings": key_facts(plan_for(self.config, self.sources["target"], self.sources["draft"])),
        }
        return Stage("model repository", self.config.repository_dir, inputs, frozenset({POLICY_FILE}))

    def _llmapi_repository(self) -> Stage:
        from trtspec.triton.llmapi import key_facts

        inputs = {
            "stage": "repository",
            "engines": {role: self.engine(role).key for role in ROLES},
            "pipeline settings": key_facts(llmapi.repository_plan(self)),
        }
        return Stage("model repository", self.config.repository_dir, inputs)

    def _hashes(self, role: Role, patterns: tuple[str, ...]) -> dict[str, str]:
        folder = self.sources[role]
        files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
        return {path.name: self.memo.sha256(path) for path in files}
