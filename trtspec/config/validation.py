"""What is measured before a release, and the rules that can block it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trtspec.config.section import Fraction, Name, PositiveFloat, PositiveInt, Section


class Dataset(Section):
    """A file of prompts (JSONL) of one domain."""

    path: Path
    """The prompts: a JSON object with `prompt` or `messages` on each line; see docs/own-pair.md."""
    domain: Name
    """Task label: acceptance is judged per domain, and the serving policy is keyed by it."""
    limit: PositiveInt | None = None
    """Use only this many prompts, drawn with the seed."""


class Validation(Section):
    """What `validate` measures."""

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
    """Draws prompts where a dataset has a `limit`, seeds sampled answers, and bootstraps the intervals."""
    warmup: Annotated[int, Field(ge=0, strict=True)] = 4
    """Requests sent before anything is counted."""
    request_timeout: PositiveFloat = 120.0
    """Seconds until one request is given up."""

    @model_validator(mode="after")
    def _distinct(self) -> Validation:
        names = [d.domain for d in self.datasets]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"two datasets share the domain {twice[0]!r}; give each its own")
        return self


class Gates(Section):
    """Rules on measured numbers that can block a release."""

    release_alpha: Fraction = 0.65
    """Floor of α over the domains that keep speculation."""
    domain_alpha: Fraction = 0.55
    """A domain whose interval is not wholly above this floor is served without speculation."""
    greedy_equality: Literal["exact", "near-tie", "off"] = "near-tie"
    """Speculative greedy text against target-only: equal; equal but for near-ties of the best logits; not judged."""
    near_tie: Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)] = 0.1
    """Largest gap between the two best logits that counts as a near-tie."""
    min_speedup: PositiveFloat | None = None
    """Floor of throughput with ÷ without speculation. Unset: reported, not judged."""
