"""Where a server shows no logits: the seam's calls that explain a difference, each of which says why it cannot."""

from __future__ import annotations

from typing import NoReturn

from trtspec.errors import ServingError
from trtspec.triton.generation import Array, GenerateRequest, Generation


class NoLogits:
    """Answers nothing; a difference of two texts then stays undiagnosed, with this reason."""

    def generate(self, model: str, request: GenerateRequest) -> Generation:
        """Refused."""
        del model, request
        self._refuse()

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """Refused."""
        del prompt
        self._refuse()

    def token_ids(self, prompt_ids: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
        """Refused."""
        del prompt_ids, max_tokens
        self._refuse()

    def next_logits(self, input_ids: tuple[int, ...]) -> Array:
        """Refused."""
        del input_ids
        self._refuse()

    def decode(self, ids: tuple[int, ...]) -> str:
        """Refused."""
        del ids
        self._refuse()

    def close(self) -> None:
        """Nothing is open."""

    def _refuse(self) -> NoReturn:
        raise ServingError("the server shows no logits here", fix="measure over gRPC, on engines, to have it judged")
