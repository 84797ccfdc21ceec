"""The seam between measurement and a served pair: what a client must be able to do.

The real one is :class:`trtspec.triton.client.TritonClient`.
"""

from __future__ import annotations

from typing import Protocol

from trtspec.triton.generation import Array, GenerateRequest, Generation


class Answering(Protocol):
    """A client with a connection of its own, used by one thread at a time but for `close`. All that load needs."""

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        """Answer one request with `ensemble` (target only) or `tensorrt_llm_bls`; ServingError on any failure."""

    def close(self) -> None:
        """Release the connection; may be called twice, and from another thread: a running call then fails."""


class Generator(Answering, Protocol):
    """The same, and the calls that explain a difference of two texts."""

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """Token ids the server makes of a prompt."""

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        """The target's own greedy continuation, without the end token."""

    def next_logits(self, input_ids: tuple[int, ...]) -> Array:
        """float [vocab]: the target's logits for the token after `input_ids`."""

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of token ids."""
