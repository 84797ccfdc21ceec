"""migrate: a `tensorrt` configuration as a `pytorch` one, with everything that changes and everything that is lost.

Works on the file as it is written, so that only what must change does. What has no counterpart is refused, all of it
at once: a migration that drops something in silence would be found out in production.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from trtspec.backends.pytorch import require_possible
from trtspec.backends.pytorch.formats import problem
from trtspec.config import ROLES, RunConfig, config_of, load_config
from trtspec.errors import ConfigError
from trtspec.triton.models.tensorrt_llm_bls.policy import parse_policy
from trtspec.triton.repository import POLICY_FILE
from trtspec.versions import DEFAULT, version

ENGINE_ONLY = ("tensorrt", "launcher", "slurm", "kubernetes", "tools", "timeout", "tokens_per_block")
"""Keys of `engine` that only a build of engines reads."""
SERVING_ONLY = ("mode", "max_queue_size", "max_queue_delay_us", "target_parameters", "draft_parameters")
"""Keys of `serving` that only the models of TensorRT engines read."""
_PATHS = (
    *(f"pair.{role}.path" for role in ROLES),
    *(f"pair.{role}.quantization.calibration.prompts" for role in ROLES),
    *("serving.tritonserver", "tools.modelopt_python", "output.engines", "output.model_repo", "output.reports"),
)
ALWAYS = (
    ("num_draft_tokens of a request", "each drafts speculation.draft_len tokens; the LLM API has no such field"),
    ("tensorrt_llm_bls", "the model is tensorrt_llm, and its tensors have other names (docs/llm-api.md)"),
    ("acceptance per round and position", "the LLM API reports totals of a request; α is then a lower bound"),
)  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One thing that is not as before. `key` is dotted, or names what is not a key."""

    key: str
    kind: Literal["changed", "lost"]
    why: str
    before: object = None
    after: object = None


@dataclass
class Migration:
    """The new document and how it differs."""

    document: dict[str, Any]
    changes: list[Change] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "config": self.document,
            "changed": [asdict(c) for c in self.changes if c.kind == "changed"],
            "lost": [asdict(c) for c in self.changes if c.kind == "lost"],
        }

    def text(self) -> str:
        """The new file."""
        head = "# Migrated by trtspec from a tensorrt configuration.\n"
        return head + str(yaml.safe_dump(self.document, sort_keys=False, allow_unicode=True, width=110))


def migrate(path: Path, out: Path | None = None) -> Migration:
    """`out`: where the result will be written, for relative paths. ConfigError for what has no counterpart."""
    config = load_config(path)
    _refuse(config, path)
    found = Migration(copy.deepcopy(yaml.safe_load(path.read_text(encoding="utf-8"))))
    _backend(found, config)
    _speculation(found, config)
    _serving(found)
    _placement(found)
    _policy(found, config)
    found.changes += [Change(key, "lost", why) for key, why in ALWAYS]
    _rebase(found.document, path.resolve().parent, (out or path).resolve().parent)
    require_possible(_checked(found, out or path))
    return found


def _refuse(config: RunConfig, path: Path) -> None:
    """Everything that cannot be migrated, in one error."""
    backend = config.engine.backend
    if backend != "tensorrt":
        what = "it is one already" if backend == "pytorch" else "only a tensorrt configuration is migrated"
        raise ConfigError(what, where=path, found=f"engine.backend: {backend}", expected="engine.backend: tensorrt")
    found = [f"pair.{role}.quantization: {text}" for role in ROLES[::-1] if (text := problem(config, role))]
    if found:
        raise ConfigError(
            f"{'; '.join(found)}", where=path, fix="set a format that both backends have, check it, then migrate"
        )


def _backend(found: Migration, config: RunConfig) -> None:
    engine = found.document["engine"]
    engine["backend"] = "pytorch"
    found.changes.append(Change("engine.backend", "changed", "no engine is built", "tensorrt", "pytorch"))
    given = config.engine.tensorrt_llm_version
    if given is not None and not version(given).llm_api:
        engine["tensorrt_llm_version"] = DEFAULT
        why = "the LLM API speculates with a draft model from 1.0 on"
        found.changes.append(Change("engine.tensorrt_llm_version", "changed", why, given, DEFAULT))
    for key in ENGINE_ONLY:
        if key in engine:
            why = "there is no engine to build"
            found.changes.append(Change(f"engine.{key}", "lost", why, engine.pop(key)))
    for role in ROLES[::-1]:
        if not config.pair[role].quantization.plain:
            why = "written as a Hugging Face checkpoint (modelopt's unified export) instead of TensorRT-LLM's"
            weights = config.pair[role].quantization.weights
            found.changes.append(Change(f"pair.{role}.quantization", "changed", why, weights, weights))


def _speculation(found: Migration, config: RunConfig) -> None:
    block, given = found.document.get("speculation") or {}, config.speculation
    if given.acceptance == "logits":
        block.pop("acceptance")
        threshold = block.pop("acceptance_threshold", None)
        why = "a draft token is accepted when it is the target's own; the rejection rule accepts more when sampling"
        found.changes.append(Change("speculation.acceptance", "changed", why, "logits", "tokens"))
        if threshold is not None:
            why = "it belongs to acceptance by logits"
            found.changes.append(Change("speculation.acceptance_threshold", "lost", why, threshold))
        if block.pop("fast_logits", None):
            found.changes.append(Change("speculation.fast_logits", "lost", "it belongs to acceptance by logits", True))
    if given.max_draft_len != given.k:
        found.document["speculation"] = block = {**block, "max_draft_len": given.k, "draft_len": given.k}
        why = "every round drafts the same number of tokens; longer drafts cannot be asked for"
        found.changes.append(Change("speculation.max_draft_len", "changed", why, given.max_draft_len, given.k))
    if config.validation.temperature > 0:
        why = "drafts are the draft's likeliest tokens; sampled answers accept fewer of them than rejection sampling"
        found.changes.append(Change("validation.temperature", "changed", why, config.validation.temperature))


def _serving(found: Migration) -> None:
    block = found.document.get("serving") or {}
    for key in SERVING_ONLY:
        if key in block:
            why = "a setting of the models of TensorRT engines; the LLM API has its own (engine.pytorch.options)"
            found.changes.append(Change(f"serving.{key}", "lost", why, block.pop(key)))


def _placement(found: Migration) -> None:
    draft = found.document["pair"]["draft"]
    target = found.document["pair"]["target"].get("parallelism")
    before = draft.pop("parallelism", None)
    if target is not None:
        draft["parallelism"] = copy.deepcopy(target)
    if before != target:
        why = "the LLM API runs the draft on the target's GPUs, split like the target"
        found.changes.append(Change("pair.draft.parallelism", "lost", why, before, target))
    hardware = found.document.get("hardware") or {}
    if hardware.get("placement") == "separate":
        del hardware["placement"]
        found.changes.append(Change("hardware.placement", "lost", "both models share the GPUs", "separate"))


def _policy(found: Migration, config: RunConfig) -> None:
    """The built repository's policy: its lengths by load become a schedule; the rest has no counterpart."""
    path = config.repository_dir / POLICY_FILE
    if not path.is_file():
        return
    try:
        policy = parse_policy(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the serving policy cannot be read: {error}", where=path) from None
    if policy.tasks:
        why = "the LLM API cannot choose a draft length by task; serve such tasks from a model without speculation"
        found.changes.append(Change("policy.json: tasks", "lost", why, sorted(policy.tasks)))
    if policy.default != config.speculation.k:
        why = "the draft length is speculation.draft_len"
        found.changes.append(Change("policy.json: default", "lost", why, policy.default, config.speculation.k))
    steps = [(requests, length) for requests, length in policy.by_concurrency if requests > 1]
    if steps:
        _schedule(found, config.speculation.k, steps)


def _schedule(found: Migration, k: int, steps: list[tuple[int, int]]) -> None:
    spelling = version(found.document["engine"].get("tensorrt_llm_version") or DEFAULT).llmapi
    if spelling is None or spelling.schedule is None:
        why = "this TensorRT-LLM version has no draft_len_schedule"
        found.changes.append(Change("policy.json: by_concurrency", "lost", why, steps))
        return
    schedule = {1: k} | {requests: min(length, k) for requests, length in steps}
    found.document["engine"]["pytorch"] = {"draft_len_schedule": schedule}
    why = "from policy.json: draft lengths by load, which the engine counts in active requests"
    found.changes.append(Change("engine.pytorch.draft_len_schedule", "changed", why, steps, schedule))


def _rebase(document: dict[str, Any], old: Path, new: Path) -> None:
    """Relative paths of the file, seen from the folder of the new one."""
    if old == new:
        return
    for key in _PATHS:
        *parents, last = key.split(".")
        block: Any = document
        for part in parents:
            block = block.get(part) if isinstance(block, Mapping) else None
        if isinstance(block, dict) and isinstance(block.get(last), str):
            block[last] = _moved(block[last], old, new)
    for dataset in (document.get("validation") or {}).get("datasets") or ():
        dataset["path"] = _moved(dataset["path"], old, new)


def _moved(given: str, old: Path, new: Path) -> str:
    path = Path(given).expanduser()
    return given if path.is_absolute() else os.path.relpath(old / path, new)


def _checked(found: Migration, where: Path) -> RunConfig:
    """The document, read as a configuration; a fault here is ours to explain."""
    try:
        return config_of(copy.deepcopy(found.document), environ={})
    except ConfigError as error:
        raise ConfigError(f"the migrated file is not valid: {error}", where=where) from None
