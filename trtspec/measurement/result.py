"""The result document: everything one measurement found, with its conditions, as one JSON file.

A figure that was not measured is null, never 0. `trtspec schema --of result` prints the published schema.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.measurement.parts import (
    Cost,
    Count,
    CounterCheck,
    CounterRow,
    CurvePoint,
    DatasetRow,
    Goodput,
    LooksRow,
    MemoryRow,
    ModeName,
    Percentiles,
    QualityRow,
    Record,
    Seconds,
    Severity,
    Slo,
    StepCosts,
)

__all__ = [
    "AnswerRow",
    "BlockRow",
    "Conditions",
    "Cost",
    "Count",
    "CounterCheck",
    "CounterRow",
    "CurvePoint",
    "DatasetRow",
    "DifferenceRow",
    "DomainResult",
    "Estimate",
    "Exactness",
    "Figures",
    "Goodput",
    "LooksRow",
    "MemoryRow",
    "Percentiles",
    "Performance",
    "ProblemRow",
    "PromptRow",
    "QualityRow",
    "Record",
    "ResultDocument",
    "Slo",
    "StepCosts",
    "Unusable",
]
VERSION = 2


class Estimate(Record):
    """A measured ratio with its confidence interval."""

    point: float
    low: float | None
    """Lower end; null where the sample allows no interval."""
    high: float | None
    n: Count
    """Independent units: prompts for acceptance, blocks for speed."""
    level: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95


class BlockRow(Record):
    """Requests of one mode sent back to back at the declared concurrency."""

    domain: str
    index: Count
    wall_seconds: Seconds
    requests: Count
    output_tokens: Count


class Performance(Record):
    """Speed in one mode. Throughput is output tokens ÷ wall time of the blocks."""

    requests: Count
    output_tokens: Count
    wall_seconds: Seconds
    tokens_per_second: float | None
    latency: Percentiles | None
    """From sending a request to its last token."""
    first_token: Percentiles | None
    """From sending a request to its first text; null unless answers were streamed."""
    per_token: Percentiles | None = None
    """From the first to the last chunk, by the tokens that came after the first chunk: one figure per request."""
    inter_chunk: Percentiles | None = None
    """Between two chunks of text of one answer. A chunk may hold several tokens: not a time per token."""
    requests_per_second: float | None = None
    goodput: Goodput | None = None
    blocks: tuple[BlockRow, ...]


class Figures(Record):
    """Acceptance and speed over some prompts."""

    histogram: tuple[tuple[tuple[Count, ...], ...], ...] | None
    """[2, K+1, K+1]: rounds that ran out uncut, rounds cut short; rows drafted, columns accepted."""
    alpha: Estimate | None
    """Per-token acceptance: accepted ÷ tested, over tokens."""
    alpha_bound: Estimate | None = None
    """accepted ÷ emitted: α is at least this. Measured where the server reports totals and no rounds (LLM API)."""
    alpha_macro: float | None
    """The mean of the prompts' own α."""
    draft_acceptance_rate: float | None
    """accepted ÷ drafted. Falls as K grows; never ranks two K's."""
    draft_acceptance_rate_macro: float | None = None
    """The mean of the prompts' own rates."""
    acceptance_length: float | None
    """Tokens per round, the target's own token included."""
    acceptance_length_macro: float | None = None
    """The mean of the prompts' own lengths."""
    per_position: tuple[float | None, ...] | None
    """P(position i of a round is accepted), i = 1..K."""
    position_intervals: tuple[Estimate | None, ...] | None = None
    """The same with intervals over prompts."""
    target_only: Performance | None
    speculative: Performance | None
    speedup: Estimate | None
    """Time the target alone would take for the tokens ÷ time speculation took, at equal concurrency."""

    @property
    def rounds(self) -> RoundHistogram | None:
        """The histogram as counters; None where nothing was counted."""
        return None if self.histogram is None else RoundHistogram.from_wire(self.histogram)


class AnswerRow(Record):
    """One answer without its text."""

    output_tokens: Count
    seconds: Seconds
    first_token_seconds: Seconds | None
    per_token_seconds: Seconds | None = None
    chunks: Count | None = None
    """Pieces of text in which it came; null unless streamed."""
    finish_reason: str
    repeats: bool | None = None
    """Whether its last half is a loop; null where it was not looked at."""


class PromptRow(Record):
    """One prompt: its counters and both answers; null where an answer could not be used."""

    id: str
    sha256: str = ""
    """Of the rendered prompt, `max_tokens` and the sampling settings: equal in two runs that asked the same."""
    rounds: Count | None
    drafted: Count | None
    tested: Count | None
    accepted: Count | None
    emitted: Count | None
    equal: bool | None
    """Whether both texts are equal; null unless both are usable and greedy."""
    target_only: AnswerRow | None
    speculative: AnswerRow | None


class DifferenceRow(Record):
    """The first place where a speculative greedy text departs from the target's own."""

    prompt: str
    kind: Literal["near-tie", "real", "undiagnosed"]
    token: int | None
    gap: float | None
    """Best logit minus that of the worse of the two tokens; null where it was not found."""
    before: str
    target_only: str
    speculative: str
    reason: str


class Exactness(Record):
    """Greedy equality of the speculative texts with target-only ones."""

    compared: Count
    equal: Count
    near_tie: float
    """Largest gap of the two best logits that was taken for a near-tie."""
    near_ties: Count
    real: Count
    undiagnosed: Count
    differences: tuple[DifferenceRow, ...]


class Unusable(Record):
    """A request without a usable answer."""

    prompt: str
    mode: ModeName
    reason: str


class DomainResult(Record):
    """One domain."""

    domain: Annotated[str, Field(min_length=1)]
    prompts: Count
    figures: Figures
    exactness: Exactness | None
    """Null where it was not measured: sampled answers may differ."""
    unusable: tuple[Unusable, ...]
    rows: tuple[PromptRow, ...]


class ProblemRow(Record):
    """What is wrong with the evidence.

    `invalid`: it contradicts itself, nothing follows from it. `release`: it says what it says, but not about what
    users would get. `note`: to know beside the numbers.
    """

    code: str
    domain: str
    """Empty where it is about the whole measurement."""
    message: str
    count: Count
    severity: Severity = "invalid"


class Conditions(Record):
    """What every number of the document depends on."""

    k: Annotated[int, Field(ge=0, le=128)]
    """Draft tokens per round asked for."""
    acceptance: Literal["tokens", "logits"]
    concurrency: Annotated[int, Field(ge=1, le=2**53)]
    """Requests in flight at once."""
    temperature: Annotated[float, Field(ge=0.0)]
    top_k: Count = 0
    """0 is no limit; no meaning at temperature 0."""
    top_p: float = 1.0
    seed: int
    warmup: Count
    streamed: bool
    transport: Literal["grpc", "http"] = "grpc"
    ignore_eos: bool = False
    modes: tuple[ModeName, ...] = ("target-only", "speculative")
    """What was measured; one alone allows no speed-up."""
    slo: Slo | None = None
    backend: str
    compute_dtype: str
    gpu: str
    gpu_count: Count

    def summary(self) -> str:
        """The conditions in one line, to stand beside numbers."""
        how = "greedy" if self.temperature == 0 else f"temperature {self.temperature:g}"
        if self.temperature and self.top_k:
            how += f", top-k {self.top_k}"
        if self.temperature and self.top_p < 1.0:
            how += f", top-p {self.top_p:g}"
        where = self.gpu if self.gpu_count == 1 else f"{self.gpu_count}× {self.gpu}"
        stream = "streamed" if self.streamed else "not streamed"
        return (
            f"K={self.k}, {how}, {self.acceptance} acceptance, {self.concurrency} in flight, {stream}, "
            f"{self.backend} backend, {self.compute_dtype}, {where}"
        )


class ResultDocument(Record):
    """One measurement."""

    version: Literal[2] = 2
    pair: str
    created: str
    """UTC, ISO 8601."""
    conditions: Conditions
    environment: dict[str, str]
    """Versions of what measured and what was measured."""
    domains: tuple[DomainResult, ...] = Field(min_length=1)
    overall: Figures
    """Over all domains, those that will be switched off included."""
    problems: tuple[ProblemRow, ...]
    datasets: tuple[DatasetRow, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    """Each mode at each load of the sweep."""
    counters: CounterCheck | None = None
    costs: StepCosts | None = None
    """At the declared concurrency."""
    costs_at: tuple[StepCosts, ...] = ()
    """At others."""
    memory: MemoryRow | None = None
    interrupted: bool = False
    """Ended by Ctrl-C: holds what was measured until then."""
    stopped: Literal["all", "decided", "budget", "interrupted"] = "all"
    """Why no more prompts were asked: there were none, the gates were decided, the budget was spent, or Ctrl-C."""
    looks: LooksRow | None = None
    """Null for a measurement of a size that was fixed beforehand."""
    quality: tuple[QualityRow, ...] = ()
    """Checks of whether answers are right."""
    release_valid: bool = True
    """Whether a release may be judged by it; where not, problems say why."""
