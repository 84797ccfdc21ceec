"""What the reference engine is asked and what it answers. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
FinishReason = Literal["", "end_id", "stop_words", "length", "cancelled", "error"]


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. Greedy when `top_k == 1` or `temperature == 0`.

    `top_k == 0` and `top_p` outside (0, 1) switch that filter off. With a seed the draw is a pure function of
    (seed, absolute position), whatever the batch, the call pattern or the reuse of the cache.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """True when no random number is needed."""
        return self.top_k == 1 or self.temperature == 0


@dataclass(frozen=True)
class Request:
    """One generation, or, with `draft_ids`, one verify step.

    `input_ids` are everything before the first new token. Penalties count over the whole sequence, prompt included,
    so that a sequence continued in several calls is penalised like one generated in a single call.
    """

    request_id: str
    input_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = Sampling(top_k=1)
    end_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    """End ids cannot be drawn before this many new tokens."""
    draft_ids: tuple[int, ...] = ()
    """Proposed continuation of `input_ids`; the accepted part and one token of the target's own are returned."""
    draft_logits: FloatArray | None = None
    """[n_draft, vocab]: acceptance by the rejection rule instead of by token equality. The softmax of a row, as it
    comes, is what its draft token was drawn from (so does TensorRT-LLM's target; who drew applies its sampling)."""
    acceptance_threshold: float | None = None
    """With `draft_logits`: this constant instead of a random number."""
    stop_words: tuple[tuple[int, ...], ...] = ()
    """Id sequences that end the request when the output ends with one; they stay in the output."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Id sequences whose last token cannot be drawn where the ones before it stand."""
    embedding_bias: FloatArray | None = None
    """[vocab], added to every row of logits before all other rules."""
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    return_generation_logits: bool = False
    return_context_logits: bool = False
    return_log_probs: bool = False


@dataclass(frozen=True)
class Update:
    """What one engine step added to a request; the last one has `finished`.

    `new_ids` never holds the end id itself (TensorRT-LLM does not count it). `accepted` and `drafted` are totals of
    the request so far. `logits` [n_new, vocab] and `log_probs` [n_new] belong to `new_ids`; the logits are the
    model's own, before penalties and sampling. `context_logits` [n_input, vocab] come with the first update.
    """

    new_ids: tuple[int, ...]
    finished: bool
    finish_reason: FinishReason = ""
    accepted: int = 0
    drafted: int = 0
    logits: npt.NDArray[np.float32] | None = None
    log_probs: npt.NDArray[np.float32] | None = None
    error: str | None = None
    context_logits: npt.NDArray[np.float32] | None = None
    histogram: npt.NDArray[np.int64] | None = None
    """[2, K+1, K+1] rounds (uncut, cut; drafted, accepted) of the whole request: last update of a speculative pair."""


@dataclass(frozen=True)
class Result:
    """A finished request: all its updates added up."""

    ids: tuple[int, ...]
    finish_reason: FinishReason
    accepted: int
    drafted: int
    logits: npt.NDArray[np.float32] | None = None
    log_probs: npt.NDArray[np.float32] | None = None
    context_logits: npt.NDArray[np.float32] | None = None
    histogram: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class EngineStats:
    """Counters since the engine was opened."""

    requests: int
    """Requests admitted to a slot."""
    prefilled: int
    """Prompt tokens that were computed."""
    reused: int
    """Prompt tokens whose keys and values were still in the cache."""
    steps: int
    """Forward passes."""
    tokens: int
    """Tokens handed out."""
    drafted: int
    accepted: int
    batch_sizes: dict[int, int]
    """Sequences in a forward pass -> how many passes had that many."""
    active: int
    """Sequences running now."""
    waiting: int
    """Requests queued now."""


class Ticket(Protocol):
    """A submitted request."""

    def cancel(self) -> None:
        """Ask for an end; the last update then says `cancelled` (or the real reason if that came first)."""
