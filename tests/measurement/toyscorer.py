"""A model over eight tokens whose logits are a hash of everything before them: a scorer without weights."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from trtspec.backends.reference.request import Sampling
from trtspec.backends.reference.sampling import TOKEN, draw, probabilities, uniform
from trtspec.backends.scoring.base import GREEDY, asked, seeds_of

VOCAB = 8


class ToyScorer:
    """`likeness`: how much of the logits comes from `shared` (the pair's common part), the rest is the model's own."""

    def __init__(self, own: str, likeness: float, shared: str = "pair", vocab: int = VOCAB) -> None:
        self._own, self._likeness, self._shared, self._vocab = own, likeness, shared, vocab
        self.asked = 0
        """Prompts that were answered."""
        self.fail_after: int | None = None

    vocab_size = property(lambda self: self._vocab)
    max_len = property(lambda self: 512)
    conditions: Mapping[str, str] = {"engine": "toy", "dtype": "float32", "device": "cpu"}

    def row(self, ids: Sequence[int]) -> Any:
        """[vocab] float32"""
        parts = []
        for name in (self._shared, self._own):
            seed = hashlib.sha256(f"{name}:{','.join(map(str, ids))}".encode()).digest()[:8]
            parts.append(np.random.default_rng(int.from_bytes(seed, "little")).standard_normal(self._vocab))
        mixed = self._likeness * parts[0] + (1 - self._likeness) * parts[1]
        return (2.0 * mixed).astype(np.float32)

    def pick(self, ids: Sequence[int], sampling: Sampling, seed: int, purpose: int = TOKEN) -> int:
        """The next token, as the reference engine would choose it."""
        if sampling.greedy:
            return int(self.row(ids).argmax())
        return draw(probabilities(self.row(ids), sampling), uniform(seed, len(ids), purpose))

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_tokens: int | Sequence[int],
        sampling: Sampling = GREEDY,
        seed: int | Sequence[int] = 0,
        end_ids: Collection[int] = (),
    ) -> list[list[int]]:
        found = []
        each = zip(prompts, asked(prompts, max_tokens, 512), seeds_of(seed, len(prompts)), strict=True)
        for ids, most, own_seed in each:
            self.asked += 1
            if self.fail_after is not None and self.asked > self.fail_after:
                raise KeyboardInterrupt
            text = list(ids)
            while len(text) - len(ids) < most:
                token = self.pick(text, sampling, own_seed)
                if token in end_ids:
                    break
                text.append(token)
            found.append(text[len(ids) :])
        return found

    def logits(self, ids: Sequence[int], first: int) -> Any:
        return np.stack([self.row(ids[: i + 1]) for i in range(first, len(ids))])

    def close(self) -> None: ...

    def __enter__(self) -> ToyScorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
