"""What a model repository is made from: limits, ids, folders, and for TensorRT engines versions, memory and GPUs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.jsonfile import Keys, read_object
from trtspec.config import ROLES, Role, RunConfig
from trtspec.config.serving import Serving
from trtspec.errors import ConfigError, MissingError, ModelFileError
from trtspec.pairing.placement import MemoryPlan, plan_memory
from trtspec.triton.devices import Devices, devices
from trtspec.triton.launch import Ports, pool
from trtspec.triton.parameters import SHARED, UNSHARED, Planned, llm_parameters
from trtspec.triton.windows import attention_windows
from trtspec.versions import TrtLlm

GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
LOGITS = {"float32": "FP32", "float16": "FP16"}
Logits = Literal["FP32", "FP16"]
_KV_CACHE = {"kv_cache_free_gpu_mem_fraction", "max_tokens_in_paged_kv_cache"}


@dataclass(frozen=True)
class RepositoryPlan:
    """One pair's repository. Lengths are in tokens and what the configuration promises, without draft room."""

    name: str
    backend: Literal["reference", "tensorrt"]
    engine_dirs: Mapping[Role, Path]
    """Absolute; written into the repository."""
    tokenizer_dir: Path
    """The target's model folder; its tokenizer files are copied."""
    final_dir: Path
    """Where the repository will live."""
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    max_draft_len: int
    draft_len: int
    """Draft tokens per round where nothing else is said."""
    vocab_size: int
    end_ids: tuple[int, ...]
    """The first is the one that upstream's single `end_id` carries."""
    pad_id: int
    acceptance: Literal["tokens", "logits"] = "tokens"
    acceptance_threshold: float | None = None
    logits_dtype: Logits = "FP32"
    draft_vocab_size: int | None = None
    """Where it is known; `vocab_size` is the target's."""
    tensor_parallel: int = 1
    """The target's: TensorRT-LLM fills its logits up to a multiple of it."""
    threads: int | None = None
    """Torch threads of each reference engine; None leaves the choice to the engine."""
    version: TrtLlm | None = None
    """TensorRT-LLM's, whose names the models have; None for the reference engine, which has the newest."""
    parameters: Mapping[Role, Mapping[str, str]] = field(default_factory=dict)
    """Of the LLM models with TensorRT engines."""
    devices: Devices | None = None
    """GPUs and processes of TensorRT engines."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """What the caches were planned from: `gpu`, `bytes` of one GPU, `placement`; only a `note` where nothing was."""
    ports: Ports = field(default_factory=lambda: Ports("127.0.0.1", 8000, 8001, 8002))
    queue_size: int = 0
    queue_delay: int = 0
    serving: Serving = field(default_factory=Serving)
    """Of these, the BLS gets what concerns requests."""

    @property
    def fused(self) -> bool:
        """Whether the BLS holds both engines itself."""
        return self.serving.pipeline == "fused"


def plan_for(config: RunConfig, target: Path, draft: Path | None = None) -> RepositoryPlan:
    """The plan of `config` with the models' folders; the draft's is needed for TensorRT engines.

    MissingError, ModelFileError; ConfigError for settings that do not go together.
    """
    backend = config.engine.backend
    if backend == "pytorch":
        raise MissingError(
            "this version writes no repository for the pytorch backend",
            where="engine.backend",
            fix="choose reference, or tensorrt with TensorRT-LLM 0.17 - 1.2.1",
        )
    if not (target / TOKENIZER).is_file():
        raise ModelFileError("no such file", where=target / TOKENIZER, expected="the target's fast tokenizer")
    facts = ModelFacts.read(target)
    end_ids, pad_id = special_ids(target, facts)
    more: dict[str, Any] = {}
    if backend == "tensorrt":
        if draft is None:
            raise TypeError("a repository for TensorRT engines is planned with both models' folders")
        from trtspec.backends.tensorrt.machine import machine_for

        both: dict[Role, ModelFacts] = {"target": facts, "draft": ModelFacts.read(draft)}
        more = plan_tensorrt(config, both, machine_for(config).version)
    return RepositoryPlan(
        name=config.name,
        backend=backend,
        engine_dirs={role: config.engine_dir(role).absolute() for role in ROLES},
        tokenizer_dir=target,
        final_dir=config.repository_dir.absolute(),
        max_batch_size=config.engine.max_batch_size,
        max_input_len=config.engine.max_input_len,
        max_seq_len=config.engine.max_seq_len,
        max_draft_len=config.speculation.max_draft_len,
        draft_len=config.speculation.k,
        vocab_size=facts.vocab_size,
        draft_vocab_size=ModelFacts.read(draft).vocab_size if draft else None,
        end_ids=end_ids,
        pad_id=pad_id,
        acceptance=config.speculation.acceptance,
        acceptance_threshold=config.speculation.acceptance_threshold,
        serving=config.serving,
        **more,
    )


def plan_tensorrt(config: RunConfig, facts: Mapping[Role, ModelFacts], version: TrtLlm) -> dict[str, Any]:
    """The fields that only TensorRT engines have, by name. Reads nothing but records of engines that are built."""
    memory = _memory(config, facts)
    separate = (memory.placement if memory else config.hardware.placement) == "separate"
    placed = devices(config, separate=separate)
    given, serving = {role: config.serving.parameters(role) for role in ROLES}, config.serving
    planned = {role: _planned(config, role, facts[role], placed, memory) for role in ROLES}
    return {
        "version": version,
        "logits_dtype": logits_of(config),
        "parameters": {role: llm_parameters(role, planned[role], given[role], version) for role in ROLES},
        "devices": placed,
        "memory": _said(config, memory, placed),
        "ports": Ports(
            serving.host,
            serving.http_port or 8000,
            serving.grpc_port or 8001,
            serving.metrics_port or 8002,
            pool(serving.concurrent(config.engine.max_batch_size)),
            serving.server_args,
        ),
        "queue_size": serving.max_queue_size,
        "queue_delay": serving.max_queue_delay_us,
        "tensor_parallel": config.pair.target.parallelism.tensor,
    }


def _memory(config: RunConfig, facts: Mapping[Role, ModelFacts]) -> MemoryPlan | None:
    plan = plan_memory(facts, config)
    own = all(set(config.serving.parameters(role).given) >= _KV_CACHE for role in ROLES)
    if plan is not None and not plan.loads_at_all and not own:
        raise ConfigError(
            f"the pair does not fit {config.hardware.spec.title}: no KV cache would hold one sequence",
            where="hardware", found=f"room for {plan.tokens} tokens", expected=f"{max(plan.lengths.values())}",
            fix=f"`trtspec check` says what fits; who knows better gives {' and '.join(sorted(_KV_CACHE))} of both",
        )  # fmt: skip
    return plan


def served_length(config: RunConfig, role: Role) -> int:
    """max_seq_len of an engine as it records it: a target's with room for drafts."""
    return config.engine.max_seq_len + (config.speculation.max_draft_len if role == "target" else 0)


def _planned(
    config: RunConfig, role: Role, facts: ModelFacts, placed: Devices, memory: MemoryPlan | None
) -> Planned:  # fmt: skip
    fraction, tokens = memory.settings[role] if memory else (SHARED if placed.shared else UNSHARED, None)
    return Planned(
        engine=config.engine_dir(role).absolute(),
        fraction=fraction,
        tokens=tokens,
        gpus=placed.gpus[role],
        participants=placed.participants.get(role, ()),
        windows=attention_windows(facts, served_length(config, role)),
        fast_logits=config.speculation.fast_logits,
    )


def _said(config: RunConfig, memory: MemoryPlan | None, placed: Devices) -> dict[str, Any]:
    if memory is not None:
        return {"gpu": config.hardware.spec.name, "bytes": memory.memory, "placement": memory.placement,
                "tokens": memory.tokens}  # fmt: skip
    share = "45 % of what is free when it loads: load order decides" if placed.shared else "90 % of what is free"
    return {"note": f"memory is not planned, since hardware.gpu names no GPU: each cache takes {share}"}


def logits_of(config: RunConfig) -> Logits:
    """Type of the logits: the built engines', else the one that they will be built with. ConfigError if they differ."""
    from trtspec.backends.tensorrt.flags import LOGITS_DTYPE

    found = {role: _recorded_logits(config.engine_dir(role)) for role in ROLES}
    built = {dtype for dtype in found.values() if dtype is not None}
    if len(built) > 1 or built - set(LOGITS):
        raise ConfigError(
            "the engines' logits have no type that a repository can declare",
            where=config.engine_dir("target").parent.parent,
            found=", ".join(f"{role} {dtype}" for role, dtype in found.items()), expected="float32 or float16, equal",
            fix="rebuild the engines with `trtspec engine`",
        )  # fmt: skip
    name = built.pop() if built else LOGITS_DTYPE
    return "FP16" if name == "float16" else "FP32"


def _recorded_logits(engine: Path) -> str | None:
    try:
        document = json.loads((engine / "config.json").read_text(encoding="utf-8"))
        found = document["pretrained_config"]["logits_dtype"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not built yet
    return str(found)


def special_ids(folder: Path, facts: ModelFacts) -> tuple[tuple[int, ...], int]:
    """End ids (generation_config.json speaks before config.json) and the pad id (else the first end id, else 0)."""
    path = folder / GENERATION_CONFIG
    generation = Keys(read_object(path) if path.is_file() else {}, path)
    model = Keys(read_object(folder / "config.json"), folder / "config.json")
    end_ids = generation.ids("eos_token_id") or facts.eos_ids
    pads = generation.ids("pad_token_id") or model.ids("pad_token_id") or end_ids or (0,)
    for name, ids in (("eos_token_id", end_ids), ("pad_token_id", pads[:1])):
        bad = [i for i in ids if i >= facts.vocab_size]
        if bad:
            raise ModelFileError(
                f"{name} is outside the vocabulary", where=folder, found=bad[0], expected=f"below {facts.vocab_size}"
            )
    return end_ids, pads[0]
