"""What one measurement saw, request by request and block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.measurement.prompts import Prompt

Mode = Literal["target-only", "speculative"]
MODES: tuple[Mode, Mode] = ("target-only", "speculative")


@dataclass(frozen=True)
class Answer:
    """One request's answer. A counter that the server did not report is None, never 0."""

    prompt: Prompt
    mode: Mode
    text: str = ""
    finish_reason: str = ""
    spec_mode: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    first_token_seconds: float | None = None
    histogram: RoundHistogram | None = None
    rounds: int | None = None
    drafted: int | None = None
    tested: int | None = None
    accepted: int | None = None
    fault: str | None = None
    """Why the answer cannot be used; None for a usable one."""

    @property
    def usable(self) -> bool:
        """Whether it may enter any figure."""
        return self.fault is None


@dataclass(frozen=True)
class Block:
    """Requests of one domain and mode sent back to back at the declared concurrency."""

    domain: str
    index: int
    mode: Mode
    wall_seconds: float
    requests: int
    output_tokens: int


@dataclass(frozen=True)
class Samples:
    """Everything measured. A block that was interrupted has answers and no entry in `blocks`."""

    answers: tuple[Answer, ...]
    blocks: tuple[Block, ...]

    def of(self, domain: str, mode: Mode) -> list[Answer]:
        """The answers of one domain and mode, usable or not, in the order of the prompts."""
        return [a for a in self.answers if a.prompt.domain == domain and a.mode == mode]

    def pairs(self, domain: str) -> list[tuple[Answer, Answer]]:
        """(target-only, speculative) answers of the prompts for which both are usable."""
        spec = {a.prompt.id: a for a in self.of(domain, "speculative") if a.usable}
        return [(a, spec[a.prompt.id]) for a in self.of(domain, "target-only") if a.usable and a.prompt.id in spec]


def total(histograms: Iterable[RoundHistogram | None]) -> RoundHistogram | None:
    """The sum of what was counted; None where nothing was."""
    counted = [h for h in histograms if h is not None]
    return sum(counted[1:], counted[0]) if counted else None


def domains_of(prompts: Sequence[Prompt]) -> list[str]:
    """Domains in the order in which they first appear."""
    return list(dict.fromkeys(p.domain for p in prompts))
