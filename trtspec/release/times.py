"""Why the measured speed-up is what it is, in words, from the times of the same run."""

from __future__ import annotations

from collections.abc import Sequence

from trtspec.analysis.intervals import Interval
from trtspec.measurement.result import DomainResult, ResultDocument
from trtspec.release.rows import interval_text


def speed_words(speedup: Interval | None, kept: Sequence[DomainResult], result: ResultDocument) -> str:
    """The measured speed-up, what a round took, and what it must emit to pay."""
    if speedup is None:
        return "not measured"
    words = f"measured {interval_text(speedup)}× the target-only throughput"
    round_seconds, token_seconds, tokens = _times(kept)
    if round_seconds is None or token_seconds is None or tokens is None:
        return words
    words += (
        f": a round took {1000 * round_seconds:.1f} ms and emitted {tokens:.2f} tokens, a target-only token took "
        f"{1000 * token_seconds:.1f} ms, so a round must emit {round_seconds / token_seconds:.2f} to pay"
    )
    loses = speedup.point < 1.0 and round_seconds > tokens * token_seconds
    if loses and result.conditions.backend == "reference":
        beyond = 1000 * (round_seconds - token_seconds)
        words += (
            f"; beyond one target step a round spends {beyond:.1f} ms on drafting and on calls between client, "
            "pipeline and engines, more than the steps it saves on a model this fast: the reference backend shows "
            "that the pair works, not what it gains on a GPU"
        )
    return words


def _times(kept: Sequence[DomainResult]) -> tuple[float | None, float | None, float | None]:
    """(seconds a round, seconds a target-only token, tokens a round), over requests; prompt processing is in both."""
    rows = [r for d in kept for r in d.rows if r.speculative and r.target_only and r.rounds and r.emitted]
    rounds = sum(r.rounds or 0 for r in rows)
    plain_tokens = sum(r.target_only.output_tokens for r in rows if r.target_only)
    if not rounds or not plain_tokens:
        return None, None, None
    return (
        sum(r.speculative.seconds for r in rows if r.speculative) / rounds,
        sum(r.target_only.seconds for r in rows if r.target_only) / plain_tokens,
        sum(r.emitted or 0 for r in rows) / rounds,
    )
