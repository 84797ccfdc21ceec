"""The stages of a build as values: where each result goes and everything it depends on.

Keys are chained: checkpoint ← source files; engine ← checkpoint key; repository ← both engine keys. So a change
rebuilds only what follows it, and only the role it touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trtspec.config import ROLES, Role, RunConfig
from trtspec.errors import ConfigError
from trtspec.hashing import HashMemo
from trtspec.store import Stage

_WEIGHTS = ("config.json", "*.safetensors", "*.safetensors.index.json")
_WORDS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
)


@dataclass(frozen=True)
class Stages:
    """All stages of one configuration, given where its model folders are."""

    config: RunConfig
    sources: dict[Role, Path]
    memo: HashMemo

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
        """engines/<name>/<role>/checkpoint: TensorRT-LLM format."""
        from trtspec.checkpoint.convert import FORMAT

        model = self.config.pair[role]
        if model.quantization.weights != "none" or model.quantization.kv_cache != "auto":
            raise ConfigError(
                f"pair.{role}.quantization: this version converts unquantized checkpoints only",
                found=f"weights {model.quantization.weights}, kv_cache {model.quantization.kv_cache}",
                expected="weights none, kv_cache auto",
            )
        inputs = {
            "stage": "checkpoint",
            "format": FORMAT,
            "files": self._hashes(role, _WEIGHTS),
            "dtype": model.dtype,
            "parallelism": model.parallelism.model_dump(),
        }
        return Stage(f"checkpoint of the {role}", self.config.checkpoint_dir(role), inputs)

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

        inputs = {
            "stage": "repository",
            "engines": {role: self.engine(role).key for role in ROLES},
            "tokenizer": self._hashes("target", _WORDS),
            "pipeline settings": key_facts(plan_for(self.config, self.sources["target"])),
        }
        return Stage("model repository", self.config.repository_dir, inputs, frozenset({POLICY_FILE}))

    def _hashes(self, role: Role, patterns: tuple[str, ...]) -> dict[str, str]:
        folder = self.sources[role]
        files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
        return {path.name: self.memo.sha256(path) for path in files}
