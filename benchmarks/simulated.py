"""Simulated measurements of which the truth is known: prompts with an acceptance of their own, rounds within them.

Each prompt's acceptance is drawn from a beta distribution around α (`spread` is its concentration: the smaller, the
more prompts differ), answer lengths from a log-normal one, and rounds follow until the answer is complete. So rounds of
a prompt resemble each other, and long answers weigh more: what makes intervals over rounds wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from trtspec.measurement.result import Conditions, DomainResult, Figures, LooksRow, PromptRow, ResultDocument

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Population:
    """Where prompts come from. `shift` moves every prompt's log-odds: a draft that became worse."""

    alpha: float
    spread: float = 8.0
    k: int = 4
    typical: float = 40.0
    """Median tokens of an answer; the longest has `longest`."""
    longest: int = 64
    shift: float = 0.0

    def prompts(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> tuple[Floats, Ints]:
        """Acceptance and answer length of each prompt, without the shift."""
        own = rng.beta(self.alpha * self.spread, (1 - self.alpha) * self.spread, size)
        lengths = np.clip(rng.lognormal(np.log(self.typical), 0.6, size), 4, self.longest).astype(np.int64)
        return own, lengths

    def counts(self, rng: np.random.Generator, own: Floats, lengths: Ints) -> Counts:
        """One measurement of these prompts."""
        chance = expit(logit(np.clip(own, 1e-9, 1 - 1e-9)) + self.shift) if self.shift else own
        failing = np.maximum(1.0 - chance, 1e-9).ravel()
        left, live = lengths.ravel().copy(), np.arange(lengths.size)
        accepted, rejected, rounds = (np.zeros(lengths.size, np.int64) for _ in range(3))
        while live.size:
            drafted = np.minimum(self.k, left[live] - 1)
            kept = np.minimum(rng.geometric(failing[live]) - 1, drafted)
            accepted[live] += kept
            rejected[live] += kept < drafted
            rounds[live] += 1
            left[live] -= kept + 1
            live = live[left[live] > 0]
        accepted, rejected, rounds = (part.reshape(lengths.shape) for part in (accepted, rejected, rounds))
        return Counts(accepted, accepted + rejected, rounds, lengths)

    @lru_cache(maxsize=64)  # noqa: B019 (frozen, and few of them)
    def truth(self, of: str = "alpha", size: int = 200_000) -> float:
        """The ratio over so many prompts that its own error is about 0.0005."""
        rng = np.random.default_rng(1)
        found = self.counts(rng, *self.prompts(rng, size))
        parts = (found.accepted, found.tested) if of == "alpha" else (found.emitted, found.rounds)
        return float(parts[0].sum() / parts[1].sum())

    def worse_by(self, drop: float, size: int = 50_000) -> Population:
        """The same prompts with a draft whose α is lower by `drop`."""
        before = self.truth(size=size)
        low, high = -3.0, 0.0
        for _ in range(14):
            middle = (low + high) / 2
            fell = before - replace(self, shift=middle).truth(size=size)
            low, high = (middle, high) if fell > drop else (low, middle)
        return replace(self, shift=high)


@dataclass(frozen=True)
class Counts:
    """Per prompt, in any number of runs."""

    accepted: Ints
    tested: Ints
    rounds: Ints
    emitted: Ints

    def run(self, at: int, prompts: int | None = None) -> Counts:
        """One run of several, with its first prompts."""
        return Counts(*(part[at, :prompts] for part in (self.accepted, self.tested, self.rounds, self.emitted)))


def document(
    domains: dict[str, Counts], looks: LooksRow | None = None, stopped: str = "all", *, salt: str = "", k: int = 4
) -> ResultDocument:
    """A result with these counters and nothing else; prompts of equal place and `salt` are the same prompts."""
    nothing = Figures.model_construct(target_only=None, speculative=None)
    made = tuple(
        DomainResult.model_construct(
            domain=name,
            prompts=len(found.tested),
            figures=nothing,
            exactness=None,
            unusable=(),
            rows=_rows(name + salt, found),
        )
        for name, found in domains.items()
    )
    conditions = Conditions.model_construct(
        k=k,
        acceptance="tokens",
        concurrency=4,
        temperature=1.0,
        seed=0,
        warmup=0,
        streamed=True,
        backend="simulated",
        compute_dtype="float32",
        gpu="none",
        gpu_count=1,
    )
    return ResultDocument.model_construct(
        pair="simulated", conditions=conditions, environment={}, domains=made, problems=(), looks=looks, stopped=stopped
    )


def _rows(name: str, found: Counts) -> tuple[PromptRow, ...]:
    columns = zip(*(part.tolist() for part in (found.accepted, found.tested, found.rounds, found.emitted)), strict=True)
    return tuple(
        PromptRow.model_construct(
            id=f"{name}-{i}", sha256=f"{name}-{i}", accepted=accepted, tested=tested, rounds=rounds, emitted=emitted,
            drafted=tested, equal=None, target_only=None, speculative=None,
        )
        for i, (accepted, tested, rounds, emitted) in enumerate(columns)
    )  # fmt: skip
