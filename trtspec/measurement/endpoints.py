"""Whom to ask for which mode: one server has a model for each, or each mode has a server of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trtspec.measurement.generator import Answering
from trtspec.measurement.records import Mode

Factory = Callable[[], Answering]
ENSEMBLE, BLS, LLM_API = "ensemble", "tensorrt_llm_bls", "tensorrt_llm"


@dataclass(frozen=True)
class Endpoint:
    """Clients and the model that answers one mode."""

    clients: Factory
    model: str
    draft_len: int | None = None
    """Draft tokens per round asked for; None where the model takes no such wish."""
    totals_only: bool = False
    """The model reports sums of drafted and accepted tokens, and no rounds."""
    use_draft_logits: bool = False


def of_pair(clients: Factory, k: int, *, use_draft_logits: bool = False) -> dict[Mode, Endpoint]:
    """Both modes of a repository for TensorRT or reference engines."""
    return {
        "target-only": Endpoint(clients, ENSEMBLE),
        "speculative": Endpoint(clients, BLS, k, use_draft_logits=use_draft_logits),
    }


def of_llm_api(speculative: Factory, target_only: Factory | None) -> dict[Mode, Endpoint]:
    """Its draft length belongs to the server: the other mode needs a second one, without drafts."""
    found: dict[Mode, Endpoint] = {}
    if target_only is not None:
        found["target-only"] = Endpoint(target_only, LLM_API)
    found["speculative"] = Endpoint(speculative, LLM_API, totals_only=True)
    return found
