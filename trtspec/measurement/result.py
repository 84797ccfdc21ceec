"""The result document: everything one measurement found, with its conditions, as one JSON file.

A figure that was not measured is null, never 0. `ResultDocument.model_json_schema()` is the published schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.errors import EvidenceError

Count = int


class Record(BaseModel):
    """A frozen part of the document; unknown keys and numbers that JSON cannot hold are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Estimate(Record):
    """A measured ratio with its confidence interval."""

    point: float
    low: float | None
    """Lower end; null where the sample allows no interval."""
    high: float | None
    n: int
    """Independent units: prompts for acceptance, blocks for speed."""
    level: float = 0.95


class Percentiles(Record):
    """Seconds."""

    p50: float
    p90: float
    p99: float


class BlockRow(Record):
    """Requests of one mode sent back to back at the declared concurrency."""

    domain: str
    index: int
    wall_seconds: float
    requests: Count
    output_tokens: Count


class Performance(Record):
    """Speed in one mode. Throughput is output tokens ÷ wall time of the blocks."""

    requests: Count
    output_tokens: Count
    wall_seconds: float
    tokens_per_second: float | None
    latency: Percentiles | None
    """From sending a request to its last token."""
    first_token: Percentiles | None
    """From sending a request to its first text; null unless answers were streamed."""
    blocks: tuple[BlockRow, ...]


class Figures(Record):
    """Acceptance and speed over some prompts."""

    histogram: tuple[tuple[tuple[Count, ...], ...], ...] | None
    """[2, K+1, K+1]: rounds that ran out uncut, rounds cut short; rows drafted, columns accepted."""
    alpha: Estimate | None
    """Per-token acceptance: accepted ÷ tested, over tokens."""
    alpha_macro: float | None
    """The mean of the prompts' own α."""
    draft_acceptance_rate: float | None
    """accepted ÷ drafted. Falls as K grows; never ranks two K's."""
    acceptance_length: float | None
    """Tokens per round, the target's own token included."""
    per_position: tuple[float | None, ...] | None
    """P(position i of a round is accepted), i = 1..K."""
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
    seconds: float
    first_token_seconds: float | None
    finish_reason: str


class PromptRow(Record):
    """One prompt: its counters and both answers; null where an answer could not be used."""

    id: str
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
    mode: Literal["target-only", "speculative"]
    reason: str


class DomainResult(Record):
    """One domain."""

    domain: str
    prompts: Count
    figures: Figures
    exactness: Exactness | None
    """Null where it was not measured: sampled answers may differ."""
    unusable: tuple[Unusable, ...]
    rows: tuple[PromptRow, ...]


class ProblemRow(Record):
    """Why the evidence of a domain cannot be trusted."""

    code: str
    domain: str
    message: str
    count: Count


class Conditions(Record):
    """What every number of the document depends on."""

    k: int
    """Draft tokens per round asked for."""
    acceptance: Literal["tokens", "logits"]
    concurrency: int
    """Requests in flight at once."""
    temperature: float
    top_k: int = 0
    """0 is no limit; no meaning at temperature 0."""
    top_p: float = 1.0
    seed: int
    warmup: int
    streamed: bool
    backend: str
    compute_dtype: str
    gpu: str
    gpu_count: int

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

    version: Literal[1] = 1
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


def load_result(path: Path) -> ResultDocument:
    """Read a result document; EvidenceError where it is none."""
    try:
        return ResultDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise EvidenceError(f"cannot read the result: {error.strerror}", where=path) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "document"
        raise EvidenceError(f"not a result document: {place}: {first['msg']}", where=path) from None
