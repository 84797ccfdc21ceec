"""How long the steps of a pair take: measured where the configuration says so, else by the roofline of its GPUs.

Without a GPU only the ratio of the bytes that draft and target read is known; then a target step is the unit of time,
verifying takes one step (v = 1) at every batch, and nothing can be said about concurrency.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trtspec.analysis.roofline import Machine, Work, compute_bound_from, step
from trtspec.analysis.shape import layer_bytes
from trtspec.config import ROLES, Role, RunConfig
from trtspec.pairing import shape as shapes
from trtspec.pairing.model import Model


@dataclass(frozen=True)
class Timing:
    """Step times of both models. `works` are the rooflines; None where the machine is not known."""

    ratio: float
    """c = draft step ÷ target step at batch 1."""
    source: str
    target_seconds: float | None
    """One target step at batch 1; None when only the ratio is known."""
    overhead_seconds: float | None
    """A round outside both models; None: not measured."""
    context: int
    """Cached tokens per sequence at which the roofline is taken."""
    works: tuple[tuple[Work, Machine], tuple[Work, Machine]] | None
    """(target, draft)."""

    @property
    def absolute(self) -> bool:
        """Times are in seconds, and known for every batch."""
        return self.works is not None and self.target_seconds is not None

    def c(self, batch: int = 1) -> float:
        """Draft step ÷ target step at this batch: the given ratio, changed as the roofline's changes with the batch."""
        if self.works is None or batch == 1:
            return self.ratio
        return self.ratio * self._roofline_ratio(batch) / self._roofline_ratio(1)

    def v(self, k: int, batch: int = 1) -> float:
        """Verifying k + 1 positions ÷ one target step; 1 where the machine is not known."""
        return 1.0 if self.works is None else self._seconds(0, batch, k + 1) / self._seconds(0, batch)

    def o(self, batch: int = 1) -> float:
        """Overhead of a round ÷ one target step; 0 where it was not measured."""
        now = self.step_seconds(batch)
        return 0.0 if self.overhead_seconds is None or now is None else self.overhead_seconds / now

    def round_steps(self, k: int, batch: int = 1) -> float:
        """Length of a round of k drafts in target steps: v + k·c + o."""
        return self.v(k, batch) + k * self.c(batch) + self.o(batch)

    def rounds(self, ks: Iterable[int], batch: int = 1) -> list[float]:
        """round_steps of every k."""
        return [self.round_steps(k, batch) for k in ks]

    def step_seconds(self, batch: int = 1) -> float | None:
        """One target step at this batch."""
        if self.target_seconds is None or (batch > 1 and self.works is None):
            return None
        return self.target_seconds * (self._seconds(0, batch) / self._seconds(0, 1) if self.works else 1.0)

    def compute_bound(self, positions: int) -> int | None:
        """Requests in flight from which a target step of `positions` each is bound by arithmetic."""
        if self.works is None:
            return None
        work, machine = self.works[0]
        return compute_bound_from(work, machine, context=self.context, positions=positions)

    def _roofline_ratio(self, batch: int) -> float:
        return self._seconds(1, batch) / self._seconds(0, batch)

    def _seconds(self, which: int, batch: int, positions: int = 1) -> float:
        assert self.works is not None
        work, machine = self.works[which]
        return step(work, machine, batch=batch, context=self.context, positions=positions).seconds


def timing(target: Model, draft: Model, config: RunConfig) -> Timing | None:
    """The pair's step times; None when nothing is measured and a size is unknown."""
    checks, works = config.checks, _works(target, draft, config)
    context = config.engine.max_seq_len // 2
    overhead = None if checks.round_overhead_ms is None else checks.round_overhead_ms / 1000
    if checks.draft_step_ms is not None and checks.target_step_ms is not None:
        ratio, source = checks.draft_step_ms / checks.target_step_ms, "measured step times of the configuration"
        return Timing(ratio, source, checks.target_step_ms / 1000, overhead, context, works)
    seconds = [step(work, machine, context=context).seconds for work, machine in works] if works else []
    if checks.cost_ratio is not None:
        known = seconds[0] if seconds else None
        return Timing(checks.cost_ratio, "given as checks.cost_ratio", known, overhead, context, works)
    if seconds:
        source = f"roofline of {config.hardware.spec.title}, estimated"
        return Timing(seconds[1] / seconds[0], source, seconds[0], overhead, context, works)
    read = [bytes_per_step(model, config) for model in (target, draft)]
    if read[0] is None or read[1] is None:
        return None
    return Timing(read[1] / read[0], "estimated from the weight bytes each step reads", None, overhead, context, None)


def _works(target: Model, draft: Model, config: RunConfig) -> tuple[tuple[Work, Machine], tuple[Work, Machine]] | None:
    spec = config.hardware.spec
    if target.facts is None or draft.facts is None or config.engine.backend == "reference":
        return None
    if spec.bandwidth is None or not spec.flops or not spec.is_gpu:
        return None
    first, second = (work_of(model, config) for model in (target, draft))
    return (first, _machine("target", config)), (second, _machine("draft", config))


def work_of(model: Model, config: RunConfig) -> Work:
    """What one rank of the model does in a step; the model's facts must be known."""
    assert model.facts is not None
    role, source = model.role, config.pair[model.role]
    plain = shapes.WIDTHS[shapes.compute_type(model.facts, role, config)]
    form = shapes.form_of(source.quantization.weights, plain, group=shapes.group_size(role, config))
    cache = shapes.cache_bytes(model.facts, role, config)
    return Work(shapes.shape_of(model.facts), form, plain, cache, source.parallelism.tensor)


def _machine(role: Role, config: RunConfig) -> Machine:
    spec = config.hardware.spec
    peak = spec.peak(shapes.arithmetic_kind(config.pair[role].quantization.weights))
    assert spec.bandwidth is not None
    assert peak is not None
    return Machine(spec.bandwidth, peak, spec.link)


def bytes_per_step(model: Model, config: RunConfig) -> float | None:
    """Weight bytes one GPU reads for one token: matrices (of the chosen experts), head, norms; None without facts."""
    if model.facts is None:
        return None
    work = work_of(model, config)
    shape = work.shape
    small = (shape.layers * shape.small + shape.hidden) * work.plain
    return layer_bytes(shape, work.form, work.tensor, shape.top_k) + work.head * work.plain + small


def gpus(config: RunConfig, placement: str) -> int:
    """GPUs that are paid for: those that hold a model."""
    worlds = [config.pair[role].parallelism.world_size for role in ROLES]
    return sum(worlds) if placement == "separate" else max(worlds)
