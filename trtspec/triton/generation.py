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
    """Most draft tokens per round; 0 switches speculation off, None leaves the choice to the server's policy.

    The server takes the least of this, its policy (`policy.json`) and what the target engine was built for.
    """
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
            ("prompt", _is_text(self.prompt), "text that UTF-8 can hold"),
            ("max_tokens", 1 <= self.max_tokens < 2**31, "1 to 2^31 - 1"),
            ("draft_len", self.draft_len is None or 0 <= self.draft_len < 2**31, "0 to 2^31 - 1"),
            ("temperature", 0.0 <= self.temperature < float("inf"), "0 or more"),
            ("top_k", self.top_k is None or self.top_k >= 0, "0 (off) or more"),
            ("top_p", self.top_p is None or 0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            ("seed", self.seed is None or 0 <= self.seed < 2**64, "0 to 2^64 - 1"),
            ("stop_words", all(self.stop_words), "no empty word"),
        )
        for name, holds, expected in rules:
            if not holds:
                raise ConfigError(f"{name} is out of range", found=repr(getattr(self, name)), expected=expected)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


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
