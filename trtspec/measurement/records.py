"""What one measurement saw, request by request and block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.measurement.prompts import Prompt
from trtspec.triton.generation import Chunk

Mode = Literal["target-only", "speculative"]
MODES: tuple[Mode, Mode] = ("target-only", "speculative")
Stopped = Literal["all", "decided", "budget", "interrupted"]


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
    chunks: tuple[Chunk, ...] = ()
    """Pieces of text as they came, where the answer was streamed."""
    log_probs: int | None = None
    """How many log-probabilities came; None where none were asked for."""
    totals_only: bool = False
    """The server reports sums and no rounds (LLM API): α has a lower bound and no value."""

    @property
    def usable(self) -> bool:
        """Whether it may enter any figure."""
        return self.fault is None

    @property
    def per_token_seconds(self) -> float | None:
        """Time per output token behind the first chunk; a chunk may hold several. None where nothing came after it."""
        if len(self.chunks) < 2:
            return None
        first, last = self.chunks[0], self.chunks[-1]
        # A first chunk that was not counted is the prompt's own step, which yields one token.
        later = self.output_tokens - (1 if first.tokens is None else first.tokens)
        return (last.seconds - first.seconds) / later if later > 0 else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between chunks."""
        return [b.seconds - a.seconds for a, b in zip(self.chunks, self.chunks[1:], strict=False)]


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
    unmeasured: tuple[Answer, ...] = ()
    """Answers of the warm-up: they count in the server's counters and nowhere else."""
    stopped: Stopped = "all"
    looks: tuple[int, ...] = ()
    """Prompts answered in every mode whenever somebody looked whether that is enough."""

    def of(self, domain: str, mode: Mode) -> list[Answer]:
        """The answers of one domain and mode, usable or not, in the order of the prompts."""
        return [a for a in self.answers if a.prompt.domain == domain and a.mode == mode]

    def pairs(self, domain: str) -> list[tuple[Answer, Answer]]:
        """(target-only, speculative) answers of the prompts for which both are usable."""
        spec = {a.prompt.id: a for a in self.of(domain, "speculative") if a.usable}
        return [(a, spec[a.prompt.id]) for a in self.of(domain, "target-only") if a.usable and a.prompt.id in spec]

    def asked(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Those of the prompts that were asked at all."""
        seen = {(a.prompt.domain, a.prompt.id) for a in self.answers}
        return [p for p in prompts if (p.domain, p.id) in seen]


def total(histograms: Iterable[RoundHistogram | None]) -> RoundHistogram | None:
    """The sum of what was counted; None where nothing was."""
    counted = [h for h in histograms if h is not None]
    return sum(counted[1:], counted[0]) if counted else None


def domains_of(prompts: Sequence[Prompt]) -> list[str]:
    """Domains in the order in which they first appear."""
    return list(dict.fromkeys(p.domain for p in prompts))
