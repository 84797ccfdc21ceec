"""Do both models reach the serving length?"""

from __future__ import annotations

from collections.abc import Iterator

from trtspec.checkpoint.facts import ModelFacts
from trtspec.config import RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model

STRETCHING = ("linear", "dynamic", "yarn")
"""RoPE types whose factor multiplies a length; llama3 and longrope state the stretched length."""


def positions(facts: ModelFacts) -> int:
    """Tokens the model was made for, RoPE scaling included.

    YaRN multiplies the length the model was trained for, where that is stated; Gemma 3 states the stretched length.
    """
    factor = facts.rope.parameters.get("factor", 1.0)
    stretched = facts.rope.type in STRETCHING and not facts.model_type.startswith("gemma")
    if not stretched or type(factor) not in (int, float) or not 1 <= factor <= 1e6:
        return facts.max_position_embeddings
    trained = facts.original_max_position_embeddings if facts.rope.type == "yarn" else None
    if trained is None:
        return int(facts.max_position_embeddings * factor)
    return max(facts.max_position_embeddings, int(trained * factor))


def check_lengths(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """Positions of both against engine.max_seq_len."""
    wanted = config.engine.max_seq_len
    if target.facts is None or draft.facts is None:
        yield Finding(
            "lengths.not-measured", "info", "pair", "context lengths are not compared: a config.json is missing"
        )
        return
    limits = {"target": positions(target.facts), "draft": positions(draft.facts), "max_seq_len": wanted}
    if limits["target"] < wanted:
        yield Finding(
            "lengths.target-short", "error", "target",
            f"made for {limits['target']:,} positions, engine.max_seq_len is {wanted:,}",
            f"set engine.max_seq_len to {limits['target']} or less", limits,
        )  # fmt: skip
    if limits["draft"] < wanted:
        yield Finding(
            "lengths.draft-short", "warning", "draft",
            f"made for {limits['draft']:,} positions, engine.max_seq_len is {wanted:,}: beyond them its guesses get "
            "worse, and acceptance falls",
            f"set engine.max_seq_len to {limits['draft']} or less, or measure acceptance there", limits,
        )  # fmt: skip
    if min(limits["target"], limits["draft"]) >= wanted:
        message = f"both reach {wanted:,} tokens (target {limits['target']:,}, draft {limits['draft']:,})"
        yield Finding("lengths.fit", "info", "pair", message, None, limits)
