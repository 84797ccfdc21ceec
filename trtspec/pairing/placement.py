"""The memory plan of a pair: which model lies on which GPU, what each takes, and the two KV caches.

Target on GPUs 0 … T-1. Draft on the first of the same GPUs (`shared`), or on the GPUs after them (`separate`).
`auto` shares unless that does not fit and the machine has the GPUs: one GPU for both is the faster layout where it
fits (TensorRT-LLM's draft-target notes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from trtspec.analysis import memory as arithmetic
from trtspec.analysis.memory import Load, Pool, Split
from trtspec.analysis.shape import Shape, rank_bytes
from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import ROLES, Role, RunConfig
from trtspec.pairing import shape as shapes

Placement = Literal["shared", "separate"]
Facts = Mapping[Role, ModelFacts]


@dataclass(frozen=True)
class Use:
    """What one model takes on one GPU before its cache; bytes. All but the weights are estimates."""

    weights: int
    activations: int
    logits: int
    context: int
    """CUDA context, attention workspace, communicators."""
    kv_per_token: int

    @property
    def fixed(self) -> int:
        """Everything but the cache."""
        return self.weights + self.activations + self.logits + self.context


@dataclass(frozen=True)
class GpuUse:
    """One GPU of the plan."""

    index: int
    uses: Mapping[Role, Use]

    def loads(self, settings: Mapping[Role, tuple[float, int | None]], order: tuple[Role, ...] = ROLES) -> list[Load]:
        """The models of this GPU as they load in `order`, with (fraction, max_tokens) of each."""
        here = [role for role in order if role in self.uses]
        return [Load(self.uses[r].fixed, self.uses[r].kv_per_token, *settings[r]) for r in here]


@dataclass(frozen=True)
class MemoryPlan:
    """Where everything lies, and the caches that fit. Tokens and bytes."""

    placement: Placement
    memory: int
    """Bytes of one GPU."""
    gpus: tuple[GpuUse, ...]
    batch: int
    lengths: Mapping[Role, int]
    """Cached tokens of one sequence at most; the target's with draft room."""
    windowed: bool
    """Some layers forget: the caches are upper bounds."""

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """Each GPU's own even split."""
        everything: dict[Role, tuple[float, int | None]] = dict.fromkeys(ROLES, (1.0, None))
        return tuple(arithmetic.split_evenly(self.memory, gpu.loads(everything)) for gpu in self.gpus)

    @property
    def tokens(self) -> int:
        """Tokens in each model's cache: what the fullest GPU allows, since all ranks of a model hold the same."""
        return min(split.tokens for split in self.splits)

    @property
    def needed(self) -> int:
        """Tokens for max_batch_size sequences of full length."""
        return self.batch * arithmetic.blocks(max(self.lengths.values()))

    @property
    def short(self) -> int:
        """Bytes that the fullest GPU lacks for weights and buffers alone; 0 when they fit."""
        fixed = max(sum(use.fixed for use in gpu.uses.values()) for gpu in self.gpus)
        return max(0, fixed + arithmetic.reserve(self.memory) - self.memory)

    @property
    def largest_batch(self) -> int:
        """Sequences of full length at once."""
        return arithmetic.largest_batch(self.tokens, max(self.lengths.values()))

    @property
    def largest_length(self) -> int:
        """Prompt and answer together, of max_batch_size sequences at once."""
        room = max(self.lengths.values()) - min(self.lengths.values())
        return max(0, arithmetic.largest_length(self.tokens, self.batch) - room)

    @property
    def fits(self) -> bool:
        """Every sequence of a full batch reaches its full length at once."""
        return self.tokens >= self.needed

    @property
    def loads_at_all(self) -> bool:
        """Weights fit and one sequence of full length does; TensorRT-LLM refuses to start with less."""
        return self.largest_batch >= 1

    @cached_property
    def settings(self) -> dict[Role, tuple[float, int]]:
        """(kv_cache_free_gpu_mem_fraction, max_tokens_in_paged_kv_cache) to write for each model.

        The fraction is large enough on every GPU and in either load order, so that the tokens bind.
        """
        fractions: dict[Role, float] = dict.fromkeys(ROLES, 0.0)
        for gpu in self.gpus:
            for role, use in gpu.uses.items():
                others = sum(u.fixed + self.tokens * u.kv_per_token for u in gpu.uses.values())
                least = arithmetic.fraction_for(self.tokens * use.kv_per_token, self.memory - others)
                fractions[role] = max(fractions[role], least)
        return {role: (fractions[role], self.tokens) for role in ROLES}

    def pools(self, order: tuple[Role, ...], settings: Mapping[Role, tuple[float, int | None]]) -> dict[Role, Pool]:
        """What each model's cache gets when they load in `order`: the smallest over its GPUs."""
        found: dict[Role, Pool] = {}
        for gpu in self.gpus:
            here = [role for role in order if role in gpu.uses]
            for role, pool in zip(here, arithmetic.load_in_order(self.memory, gpu.loads(settings, order)), strict=True):
                if role not in found or pool.tokens < found[role].tokens or pool.free < 0:
                    found[role] = pool
        return found


def plan_memory(facts: Facts, config: RunConfig, placement: Placement | None = None) -> MemoryPlan | None:
    """The plan for the GPUs of the configuration; None where their memory is not known (`cpu`)."""
    memory = config.hardware.spec.memory_bytes
    if not config.hardware.spec.is_gpu or memory is None or config.engine.backend == "reference":
        return None
    wanted = placement or config.hardware.placement
    if wanted != "auto":
        return _plan(facts, config, wanted, memory)
    shared = _plan(facts, config, "shared", memory)
    if shared.fits or gpus_needed(config, "separate") > config.hardware.count:
        return shared
    separate = _plan(facts, config, "separate", memory)
    return separate if separate.tokens > shared.tokens else shared


def gpus_needed(config: RunConfig, placement: str) -> int:
    """GPUs of the whole pair."""
    worlds = [config.pair[role].parallelism.world_size for role in ROLES]
    return sum(worlds) if placement == "separate" else max(worlds)


def _plan(facts: Facts, config: RunConfig, placement: Placement, memory: int) -> MemoryPlan:
    first = config.pair.target.parallelism.world_size if placement == "separate" else 0
    uses: dict[int, dict[Role, Use]] = {}
    for role in ROLES:
        start = first if role == "draft" else 0
        for rank, use in enumerate(uses_of(facts[role], role, config)):
            uses.setdefault(start + rank, {})[role] = use
    room = {role: config.speculation.max_draft_len if role == "target" else 0 for role in ROLES}
    return MemoryPlan(
        placement=placement,
        memory=memory,
        gpus=tuple(GpuUse(i, uses[i]) for i in sorted(uses)),
        batch=config.engine.max_batch_size,
        lengths={role: config.engine.max_seq_len + room[role] for role in ROLES},
        windowed=any(shapes.shape_of(facts[role]).windowed for role in ROLES),
    )


def uses_of(facts: ModelFacts, role: Role, config: RunConfig) -> list[Use]:
    """What each rank of one model takes, in the order of ranks (pipeline stage · tensor size + tensor rank)."""
    shape, split = shapes.shape_of(facts), config.pair[role].parallelism
    draft_len = config.speculation.max_draft_len if role == "target" else 0
    batch, value = config.engine.max_batch_size, shapes.cache_bytes(facts, role, config)
    plain = shapes.WIDTHS[shapes.compute_type(facts, role, config)]
    step = config.max_num_tokens if config.engine.backend == "tensorrt" else arithmetic.step_tokens(batch, draft_len)
    activations = arithmetic.activation_bytes(shape, step, split.tensor, plain)
    context = arithmetic.CONTEXT + arithmetic.ATTENTION_WORKSPACE
    context += arithmetic.COMMUNICATOR if split.world_size > 1 else 0
    found = []
    for stage, weights in enumerate(weights_of(shape, facts, role, config)):
        layers = arithmetic.layers_of(shape, split.pipeline, stage)
        kv = arithmetic.kv_bytes_per_token(shape, value, split.tensor, layers)
        logits = arithmetic.logits_bytes(shape.vocab, batch, draft_len) if stage == split.pipeline - 1 else 0
        found += [Use(weights, activations, logits, context, kv)] * split.tensor
    return found


def weights_of(shape: Shape, facts: ModelFacts, role: Role, config: RunConfig, *, stored: bool = False) -> list[int]:
    """Weight bytes of one tensor rank per pipeline stage, as loaded or as written in the checkpoint (`stored`)."""
    weights, split = config.pair[role].quantization.weights, config.pair[role].parallelism
    kind = shapes.stored_type(facts, role, config) if stored else shapes.compute_type(facts, role, config)
    plain = shapes.WIDTHS[kind]
    form = shapes.form_of(weights, plain, group=shapes.group_size(role, config), stored=stored)
    ranks = rank_bytes(shape, form, plain, tensor=split.tensor, pipeline=split.pipeline)
    return [rank.total for rank in ranks]


@dataclass(frozen=True)
class MachineUse:
    """Memory of the reference engines on one machine; bytes, upper bounds of what is reserved."""

    weights: Mapping[Role, int]
    caches: Mapping[Role, int]
    memory: int | None

    @property
    def total(self) -> int:
        """Both models and their caches."""
        return sum(self.weights.values()) + sum(self.caches.values())


def plan_machine(facts: Facts, config: RunConfig) -> MachineUse:
    """The reference engines: weights in the type they compute in, 2 · max_batch_size cache slots of float32."""
    weights, caches = {}, {}
    for role in ROLES:
        shape = shapes.shape_of(facts[role])
        plain = shapes.WIDTHS[shapes.compute_type(facts[role], role, config)]
        weights[role] = sum(rank.total for rank in rank_bytes(shape, shapes.form_of("none", plain), plain))
        length = config.engine.max_seq_len + config.speculation.max_draft_len + 1
        caches[role] = 2 * config.engine.max_batch_size * length * arithmetic.kv_bytes_per_token(shape, 4)
    return MachineUse(weights, caches, config.hardware.spec.memory_bytes)
