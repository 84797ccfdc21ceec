"""How long a step takes: bytes over bandwidth or arithmetic over peak, whichever is longer, and a floor of launches.

    step = max(bytes / (BANDWIDTH_SHARE · bandwidth), operations / (PEAK_SHARE · peak)) + floor
    bytes = weights of one rank + batch · cache of the context;  operations = 2 · weights · batch · positions
    floor = layers · LAYER_SECONDS + 2 · layers · (HOP_SECONDS + bytes of the all-reduce / link), the latter if split

(Williams et al. 2009 for the roofline.) The shares and the floor are estimates, fitted once to published single-stream
speeds; docs/planning.md lists those with the error of each prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trtspec.analysis.memory import kv_bytes_of_sequence
from trtspec.analysis.shape import Format, Shape, layer_bytes, layer_elements

BANDWIDTH_SHARE = 0.9
"""Share of the peak bandwidth that large matrix-vector products reach."""
PEAK_SHARE = 0.65
"""Share of the dense peak that large matrix products reach."""
LAYER_SECONDS = 40e-6
"""Kernel starts and small kernels of one layer."""
HOP_SECONDS = 5e-6
"""One all-reduce of few bytes between GPUs of a machine; each layer has two."""


@dataclass(frozen=True)
class Machine:
    """One GPU. Bytes/s and operations/s; `link` is one direction between GPUs, None if unknown."""

    bandwidth: float
    peak: float
    link: float | None = None


@dataclass(frozen=True)
class Work:
    """What one model does in a step."""

    shape: Shape
    form: Format
    plain: int
    """Bytes per element of head and activations."""
    kv_value: float
    """Bytes of one cached value."""
    tensor: int = 1
    _dense: float = field(init=False, repr=False)
    """Bytes of all matrices on one rank but the experts'; computed once, since a plan asks for thousands of steps."""
    _expert: float = field(init=False, repr=False)
    """Bytes of one expert of every mixture layer."""
    _elements: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        dense = layer_bytes(self.shape, self.form, self.tensor, 0)
        object.__setattr__(self, "_dense", dense)
        object.__setattr__(self, "_expert", layer_bytes(self.shape, self.form, self.tensor, 1) - dense)
        object.__setattr__(self, "_elements", layer_elements(self.shape, self.tensor))

    @property
    def head(self) -> float:
        """Elements of the output head on one rank."""
        return self.shape.vocab * self.shape.hidden / self.tensor

    def bytes_read(self, batch: int, context: int, positions: int) -> float:
        """Bytes one rank reads in a step: matrices (of the experts that are hit), head, caches."""
        weights = self._dense + self._expert * self._hit(batch * positions)
        cache = batch * kv_bytes_of_sequence(self.shape, self.kv_value, context, self.tensor)
        return weights + self.head * self.plain + cache

    def operations(self, batch: int, positions: int) -> float:
        """Multiplications and additions of one rank in a step."""
        return 2 * (self._elements + self.head) * batch * positions

    def floor(self, machine: Machine, tokens: int) -> float:
        """Seconds that no bandwidth and no arithmetic saves."""
        each = LAYER_SECONDS
        if self.tensor > 1:
            sent = 2 * (self.tensor - 1) / self.tensor * tokens * self.shape.hidden * 2  # 16-bit, ring all-reduce
            each += 2 * (HOP_SECONDS + (sent / machine.link if machine.link else 0.0))
        return self.shape.layers * each

    def _hit(self, tokens: int) -> float:
        """Experts of a layer that some token is sent to, if all are equally likely."""
        if not self.shape.experts:
            return 0.0
        missed = 1 - self.shape.top_k / self.shape.experts
        return self.shape.experts * (1 - float(missed**tokens))


@dataclass(frozen=True)
class Step:
    """Seconds of one step and what they go to."""

    memory: float
    compute: float
    floor: float

    @property
    def seconds(self) -> float:
        """The step."""
        return max(self.memory, self.compute) + self.floor

    @property
    def compute_bound(self) -> bool:
        """Arithmetic takes longer than reading."""
        return self.compute > self.memory


def step(work: Work, machine: Machine, *, batch: int = 1, context: int = 0, positions: int = 1) -> Step:
    """One step of `batch` sequences of `context` tokens, `positions` new ones each (draft tokens + 1 to verify).

    Pipeline stages run one after the other for a token, so all layers count; a tensor rank holds its share of each.
    """
    return Step(
        work.bytes_read(batch, context, positions) / (BANDWIDTH_SHARE * machine.bandwidth),
        work.operations(batch, positions) / (PEAK_SHARE * machine.peak),
        work.floor(machine, batch * positions),
    )


def compute_bound_from(work: Work, machine: Machine, *, context: int = 0, positions: int = 1, most: int = 4096) -> int:
    """The smallest batch at which a step of `positions` is bound by arithmetic; `most` + 1 if none up to there is.

    The step can leave the bound again with longer context, never with a larger batch of the same one, unless cached
    bytes per sequence outweigh its arithmetic: then no batch is bound.
    """
    for batch in _batches(most):
        if step(work, machine, batch=batch, context=context, positions=positions).compute_bound:
            return _first(work, machine, batch, context, positions)
    return most + 1


def _batches(most: int) -> list[int]:
    return [1 << i for i in range(most.bit_length()) if 1 << i <= most]


def _first(work: Work, machine: Machine, known: int, context: int, positions: int) -> int:
    low, high = known // 2, known  # `low` is not bound (or 0)
    while high - low > 1:
        middle = (low + high) // 2
        bound = step(work, machine, batch=middle, context=context, positions=positions).compute_bound
        low, high = (low, middle) if bound else (middle, high)
    return high
