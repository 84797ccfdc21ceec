"""What is asked of a served pair, and what comes back."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trtspec.errors import ConfigError

Array = np.ndarray[Any, Any]
INF = float("inf")


@dataclass(frozen=True)
class GenerateRequest:
    """One prompt and how to answer it. Temperature 0 is greedy; `timeout` is seconds, None waits for ever."""

    prompt: str
    max_tokens: int
    draft_len: int | None = None
    """Most draft tokens per round; 0 switches speculation off, None leaves the choice to the server's policy.

    The server takes the least of this, its policy (`policy.json`) and what the target engine was built for.
    """
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None
    """End tokens before this many tokens do not end the answer."""
    stop_words: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    """Texts that the answer must not hold."""
    embedding_bias: tuple[tuple[str, float], ...] = ()
    """(word, what is added to the logits of its tokens), each."""
    task: str | None = None
    """Label of the serving policy; only the speculative model reads it."""
    stream: bool = False
    use_draft_logits: bool = False
    draft_acceptance_threshold: float | None = None
    """With draft logits: accept what the target gives at least this probability, instead of exact sampling."""
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    timeout: float | None = 120.0
    ignore_eos: bool = False
    """Go on behind the end token, up to max_tokens. For load only: it is no text that a user gets."""
    return_log_probs: bool = False

    def __post_init__(self) -> None:
        rules = (
            ("prompt", _is_text(self.prompt), "text that UTF-8 can hold"),
            ("max_tokens", 1 <= self.max_tokens < 2**31, "1 to 2^31 - 1"),
            ("draft_len", self.draft_len is None or 0 <= self.draft_len < 2**31, "0 to 2^31 - 1"),
            ("temperature", 0.0 <= self.temperature < INF, "0 or more"),
            ("top_k", self.top_k is None or self.top_k >= 0, "0 (off) or more"),
            ("top_p", self.top_p is None or 0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            ("seed", self.seed is None or 0 <= self.seed < 2**64, "0 to 2^64 - 1"),
            ("stop_words", all(self.stop_words), "no empty word"),
            ("bad_words", all(self.bad_words), "no empty word"),
            ("min_tokens", self.min_tokens is None or 0 <= self.min_tokens <= self.max_tokens, "0 to max_tokens"),
            ("repetition_penalty", self.repetition_penalty is None or 0.0 < self.repetition_penalty < INF, "above 0"),
            ("presence_penalty", _is_number(self.presence_penalty), "a number"),
            ("frequency_penalty", _is_number(self.frequency_penalty), "a number"),
            ("embedding_bias", all(word and _is_number(by) for word, by in self.embedding_bias), "words and numbers"),
            ("draft_acceptance_threshold", _is_share(self.draft_acceptance_threshold), "above 0 and at most 1"),
            ("timeout", self.timeout is None or self.timeout > 0.0, "above 0, or none"),
        )
        for name, holds, expected in rules:
            if not holds:
                raise ConfigError(f"{name} is out of range", found=repr(getattr(self, name)), expected=expected)


def _is_number(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _is_share(value: float | None) -> bool:
    """Above 0 in 32 bits, too, which is what the wire holds."""
    return value is None or (0.0 < value <= 1.0 and bool(np.float32(value) > 0.0))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


@dataclass(frozen=True)
class Chunk:
    """One piece of text as it came: seconds since the request was sent, and the tokens it carries.

    None where the model does not count by piece.
    """

    seconds: float
    tokens: int | None


@dataclass(frozen=True)
class Generation:
    """One answer. Counts are those of the whole request; they are 0 and `histogram` is None without speculation."""

    text: str
    finish_reason: str
    mode: str
    """`speculative`, `target-only:<reason>`, or empty for a model that does not say."""
    histogram: Array | None
    """int32 [2, K+1, K+1]: rounds that ran out uncut, rounds cut short; rows drafted, columns accepted."""
    tested: int
    rounds: int
    accepted: int
    drafted: int
    input_tokens: int
    output_tokens: int
    seconds: float
    """From sending to the final response."""
    first_token_seconds: float | None
    """From sending to the first response with text; None unless streamed."""
    chunks: tuple[Chunk, ...] = ()
    """Pieces with text, in the order they came; one for an answer that was not streamed."""
    log_probs: int | None = None
    """How many log-probabilities came; None where none were asked for."""

    @property
    def speculative(self) -> bool:
        """Whether drafts were made to the end."""
        return self.mode == "speculative"

    @property
    def alpha(self) -> float | None:
        """Per-token acceptance, accepted ÷ tested; None when nothing was tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def tokens_per_second(self) -> float:
        """Output tokens over the whole time, the prompt's included."""
        return self.output_tokens / self.seconds if self.seconds else 0.0
