"""What is measured before a release; the rules that can block it are in :mod:`trtspec.config.gates`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trtspec.config.gates import Gates
from trtspec.config.quality import Quality
from trtspec.config.section import Name, PositiveFloat, PositiveInt, Section

__all__ = ["Dataset", "Gates", "Quality", "Slo", "Validation"]


class Dataset(Section):
    """A file of prompts of one domain, or of several when the file names them (`domain_key`)."""

    path: Path
    """The prompts: JSON Lines, CSV, or a ShareGPT-like JSON list of conversations; see docs/measuring.md."""
    domain: Name
    """Task label: acceptance is judged per domain, and the serving policy is keyed by it."""
    limit: PositiveInt | None = None
    """Use only this many prompts of a domain, drawn with the seed."""
    format: Literal["auto", "jsonl", "csv", "sharegpt"] = "auto"
    """`auto`: by the file's ending, .csv and .tsv or .json; JSON Lines otherwise."""
    chat: bool = False
    """Plain prompts are a user's messages: they go through the deployment's chat template, as `messages` always do."""
    prompt_key: str | None = None
    """Key or column that holds the prompt where it is not `prompt`, such as `question` or `turns` (its first)."""
    reference_key: str | None = None
    """Key or column of the reference answer where it is not `reference`, such as `answer`."""
    domain_key: str | None = None
    """Key or column that names each prompt's domain, such as `category`; prompts without it belong to `domain`."""
    synthetic: bool = False
    """Not what users write: measured, and not valid for a release."""


class Slo(Section):
    """What a request must keep to count as good (goodput), in seconds."""

    first_token: PositiveFloat | None = None
    """To the first text (TTFT)."""
    per_token: PositiveFloat | None = None
    """Between tokens, on average over an answer (TPOT)."""
    latency: PositiveFloat | None = None
    """To the end of the answer."""


class Validation(Section):
    """What `measure` and `validate` measure."""

    datasets: tuple[Dataset, ...] = ()
    concurrency: Annotated[int, Field(ge=1, le=1024, strict=True)] = 4
    """Requests in flight at once; the speed-up is stated at this load."""
    max_tokens: PositiveInt = 64
    """Longest answer where a prompt does not say."""
    temperature: Annotated[float, Field(ge=0.0, le=10.0, strict=True)] = 0.0
    """0 is greedy."""
    top_k: Annotated[int, Field(ge=0, strict=True)] = 0
    """Sampling only: draw from the k best tokens; 0 is no limit."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0, strict=True)] = 1.0
    """Sampling only: draw from the likeliest tokens that together have this probability."""
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Draws prompts where a dataset has a `limit`, seeds sampled answers and arrivals."""
    warmup: Annotated[int, Field(ge=0, strict=True)] = 4
    """Requests sent before anything is counted."""
    request_timeout: PositiveFloat = 120.0
    """Seconds until one request is given up."""
    ignore_eos: bool = False
    """Every answer goes on to max_tokens. For load only: not valid for a release."""
    max_prompts: PositiveInt | None = None
    """Most prompts asked of each domain, in a seeded random order. Unset: all."""
    max_seconds: PositiveFloat | None = None
    """Time after which no further block of prompts begins. Unset: none."""
    stop_early: bool = False
    """Ask no more prompts once the gates are decided."""
    sweep: tuple[Annotated[int, Field(ge=1, le=1024, strict=True)], ...] = ()
    """More loads to measure, each in a window of its own: requests kept in flight."""
    arrival_rates: tuple[PositiveFloat, ...] = ()
    """More loads to measure: requests per second that arrive as they come (Poisson), whatever is still running."""
    window: PositiveFloat = 10.0
    """Seconds of each window of `sweep` and `arrival_rates`, after a fifth of it to warm up."""
    costs: bool = True
    """Time single steps too, with 1, `concurrency` and each of `sweep` in flight: for docs/choosing-k.md."""
    slo: Slo = Slo()
    quality: Quality = Quality()

    @model_validator(mode="after")
    def _distinct(self) -> Validation:
        names = [d.domain for d in self.datasets]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"two datasets share the domain {twice[0]!r}; give each its own")
        return self
