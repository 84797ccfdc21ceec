"""The rules of a release as data: limits on measured numbers. docs/gates.md says why each is there and what to do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trtspec.config.section import Fraction, PositiveFloat, Section


class Gates(Section):
    """Rules on measured numbers that can block a release. A limit that is unset is reported, not judged."""

    release_alpha: Fraction = 0.65
    """Floor of α over the domains that keep speculation."""
    domain_alpha: Fraction = 0.55
    """A domain whose interval is not wholly above this floor is served without speculation."""
    min_acceptance_length: Annotated[float, Field(ge=1.0, allow_inf_nan=False, strict=True)] | None = None
    """Floor of tokens per round over those domains, the target's own token included."""
    min_speedup: PositiveFloat | None = None
    """Floor of throughput with ÷ without speculation at `validation.concurrency`. Unset: reported, not judged."""
    max_ttft_p50: PositiveFloat | None = None
    """Most seconds to the first text, half of the speculative requests."""
    max_ttft_p99: PositiveFloat | None = None
    """The same, 99 of 100 requests; needs about 370 answers to be decided."""
    max_tpot_p50: PositiveFloat | None = None
    """Most seconds per token after the first chunk, half of the speculative requests."""
    max_tpot_p99: PositiveFloat | None = None
    """The same, 99 of 100 requests."""
    min_memory_headroom: Fraction | None = None
    """Least share of the fullest device's memory that stays free while requests run."""
    greedy_equality: Literal["exact", "near-tie", "off"] = "near-tie"
    """Speculative greedy text against target-only: equal; equal but for near-ties of the best logits; not judged."""
    near_tie: Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)] = 0.1
    """Largest gap between the two best logits that counts as a near-tie."""
    min_quality: Fraction | None = None
    """Floor of the share of speculative answers that `validation.quality` finds right."""
    max_quality_drop: Fraction | None = 0.05
    """Largest drop of that share against the target alone; judged where quality was measured."""
    max_degenerate: Fraction | None = 0.5
    """Largest share of speculative answers that end in a loop: loops are easy to draft, and α on them says nothing."""
    max_alpha_drop: Fraction | None = 0.05
    """With a baseline: the drop of α that must be ruled out, over all domains with speculation and in each."""
    max_length_drop: Fraction | None = None
    """With a baseline: the same for tokens per round, as a share of the baseline's."""
    max_speedup_drop: Fraction | None = None
    """With a baseline: the same for the speed-up, as a share of the baseline's."""
    max_twin_drop: Fraction | None = 0.05
    """With a twin (`gate --twin`, the same pair with an unquantized draft): the drop of α that must be ruled out."""
