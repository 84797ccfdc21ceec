"""Parts of the result document that stand beside the figures: where prompts came from, load, counters, costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

# What no machine counts or waits is no measurement; sums and ratios of it would overflow.
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0.0, le=1e12)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
ModeName = Literal["target-only", "speculative"]
Severity = Literal["invalid", "release", "note"]


class Record(BaseModel):
    """A frozen part of the document; unknown keys and numbers that JSON cannot hold are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Percentiles(Record):
    """Seconds."""

    p50: Seconds
    p90: Seconds
    p99: Seconds


class DatasetRow(Record):
    """The prompts of one domain, and what a look at them found."""

    domain: str
    file: str
    """Name of the file, without its folder."""
    sha256: str
    prompts: Count
    """Prompts measured."""
    available: Count
    """Prompts in the file."""
    duplicates: Count = 0
    """Prompts of the file that repeat an earlier one; they were not measured."""
    near_duplicates: Count = 0
    """Measured prompts that share most of their text with an earlier one; duplicates are not among them."""
    random_tokens: Count | None = None
    """Measured prompts that look like random tokens, not like text; null without a tokenizer to look with."""
    references: Count = 0
    """Measured prompts that came with a reference answer."""
    skipped: Count = 0
    """Entries of the file that hold no question; they were not measured."""
    ignore_eos: bool = False
    """Answers went on behind the end token: no text that a user gets."""
    synthetic: bool = False
    """Declared, or found, to be no real prompts."""


class Slo(Record):
    """What a request must keep to count as good, in seconds; null is no limit."""

    first_token: float | None = None
    per_token: float | None = None
    latency: float | None = None


class Goodput(Record):
    """Requests that kept every limit. A failed request is not good."""

    slo: Slo
    good: Count
    requests: Count
    requests_per_second: float | None
    """Good requests ÷ wall time."""

    @property
    def share(self) -> float | None:
        """Good ÷ sent."""
        return self.good / self.requests if self.requests else None


class CurvePoint(Record):
    """One mode at one load: requests in flight (closed loop), or arrivals per second (open loop, Poisson)."""

    mode: ModeName
    concurrency: Count | None
    """Requests kept in flight; null in an open loop."""
    arrival_rate: float | None
    """Requests per second that were sent, whatever came back; null in a closed loop."""
    requests: Count
    failed: Count
    output_tokens: Count
    wall_seconds: Seconds
    tokens_per_second: float | None
    requests_per_second: float | None
    """Finished ÷ wall time."""
    first_token: Percentiles | None
    per_token: Percentiles | None
    latency: Percentiles | None
    """Open loop: from when the request was due, so that waiting to be sent counts too."""
    in_flight: float | None
    """Requests in flight on average inside the window, those included that began before it or ended behind it."""
    goodput: Goodput | None


class CounterRow(Record):
    """One counter: what the server's rose by, and the sum of the answers."""

    name: str
    server: float
    answers: float


class CounterCheck(Record):
    """The server's counters before and after, against the answers.

    `disturbed`: others used the server, or it was restarted, so that nothing follows; `not-measured`: it has none.
    """

    outcome: Literal["agree", "disagree", "disturbed", "not-measured"]
    reason: str
    rows: tuple[CounterRow, ...] = ()


class Cost(Record):
    """Seconds of one step: the median of n."""

    seconds: float
    n: Count
    low: float | None = None
    high: float | None = None
    """The quartiles."""


class StepCosts(Record):
    """What a round is made of, at the declared concurrency unless `concurrency` says otherwise."""

    draft_step: Cost | None = None
    target_step: Cost | None = None
    token: Cost | None = None
    """A token of the target alone as a client gets it: a streamed answer behind its first piece, by its tokens."""
    verify: dict[int, Cost] = {}
    """By number of draft tokens verified."""
    overhead: Cost | None = None
    """Of a round of k, beside k draft steps and the verification: both calls, the pipeline, the stream. Below 0 where
    steps overlap with those of other requests."""
    k: Count | None = None
    """Draft tokens of those rounds."""
    overheads: dict[int, Cost] = {}
    """The same of rounds of other lengths, k among them."""
    concurrency: Count = 1


class LooksRow(Record):
    """When a measurement that may stop early was looked at; intervals are widened for it."""

    budget: Annotated[int, Field(ge=1, le=2**53)]
    """Prompts planned."""
    at: Annotated[tuple[Annotated[int, Field(ge=1, le=2**53)], ...], Field(min_length=1, max_length=64)]
    """Prompts answered in every mode at each look, the last one being the end."""


class MemoryRow(Record):
    """The fullest device while requests ran."""

    device: str
    """`gpu` with its UUID, or `host`."""
    total_bytes: Annotated[int, Field(ge=1, le=2**53)]
    used_bytes: Count

    @property
    def headroom(self) -> float:
        """Free ÷ total."""
        return 1.0 - self.used_bytes / self.total_bytes


class QualityRow(Record):
    """One check of whether answers are right, over the prompts answered in both modes."""

    domain: str
    """Empty where it is about all."""
    check: str
    n: Count
    target_only: Share | None
    """Share of right answers; null where a command only said yes or no."""
    speculative: Share | None
    only_target_only: Count | None = None
    """Prompts that the target alone answers rightly and speculation does not."""
    only_speculative: Count | None = None
    says_no: bool = False
    """The user's command ended with exit code 1."""
