"""What is asked of a served pair, and what comes back."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trtspec.errors import ConfigError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GenerateRequest:
    """One prompt and how to answer it. Temperature 0 is greedy; `timeout` is seconds, None waits for ever."""

    prompt: str
    max_tokens: int
    draft_len: int | None = None
    """Draft tokens per round; 0 switches speculation off, None leaves the choice to the server's policy."""
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop_words: tuple[str, ...] = ()
    task: str | None = None
    """Label of the serving policy; only the speculative model reads it."""
    stream: bool = False
    use_draft_logits: bool = False
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    timeout: float | None = 120.0

    def __post_init__(self) -> None:
        rules = (
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("draft_len", self.draft_len is None or self.draft_len >= 0, "0 or more"),
            ("temperature", 0.0 <= self.temperature < float("inf"), "0 or more"),
            ("top_k", self.top_k is None or self.top_k >= 0, "0 (off) or more"),
            ("top_p", self.top_p is None or 0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            ("seed", self.seed is None or 0 <= self.seed < 2**64, "0 to 2^64 - 1"),
            ("stop_words", all(self.stop_words), "no empty word"),
        )
        for name, holds, expected in rules:
            if not holds:
                raise ConfigError(f"{name} is out of range", found=repr(getattr(self, name)), expected=expected)


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
