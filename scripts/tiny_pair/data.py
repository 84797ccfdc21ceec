"""Documents as token streams: packed windows with a loss mask."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from .corpus import Document
from .model import BOS_ID, EOS_ID
from .tokenizer import chat_prompt

WINDOW = 256


@dataclass(frozen=True)
class Piece:
    """A document's tokens; the loss counts only what follows the first `prompt` of them."""

    ids: list[int]
    prompt: int


def encode(tokenizer: Tokenizer, documents: list[Document], seed: int) -> list[Piece]:
    pieces: list[Piece] = []
    chats = [d for d in documents if d.prompt]
    heads = tokenizer.encode_batch([chat_prompt(d.prompt) for d in chats], add_special_tokens=False)
    tails = tokenizer.encode_batch([d.text for d in chats], add_special_tokens=False)
    for head, tail in zip(heads, tails, strict=True):
        pieces.append(Piece([*head.ids, *tail.ids, EOS_ID], len(head.ids)))
    rng = random.Random(seed)
    raw = [chunk for d in documents if not d.prompt for chunk in raw_chunks(d.text, rng)]
    for encoding in tokenizer.encode_batch(raw, add_special_tokens=False):
        pieces.append(Piece([BOS_ID, *encoding.ids], 1))
    return pieces


def raw_chunks(text: str, rng: random.Random) -> Iterator[str]:
    """Cut a file at line ends into pieces of a random size.

    The pieces start anywhere in a file, as the prompts do, and mostly fit one window.
    """
    chunk, size = "", rng.randint(400, 900)
    for line in text.splitlines(keepends=True):
        if len(chunk) + len(line) > size and chunk:
            yield chunk
            chunk, size = "", rng.randint(400, 900)
        chunk += line
    if chunk:
        yield chunk


class Stream:
    """An endless, seeded sequence of packed batches; every epoch has another order."""

    def __init__(self, pieces: list[Piece], seed: int) -> None:
        self.pieces, self.rng = pieces, random.Random(seed)
        self.ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.counted: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)

    def _refill(self) -> None:
        order = self.rng.sample(range(len(self.pieces)), len(self.pieces))
        ids = [token for i in order for token in self.pieces[i].ids]
        counted = [position >= self.pieces[i].prompt for i in order for position in range(len(self.pieces[i].ids))]
        self.ids = np.concatenate([self.ids, np.array(ids, dtype=np.int64)])
        self.counted = np.concatenate([self.counted, np.array(counted, dtype=np.bool_)])

    def batch(self, rows: int) -> tuple[Tensor, Tensor]:
        """Token windows [rows, WINDOW + 1] and which of them are answers or raw text."""
        need = rows * (WINDOW + 1)
        while len(self.ids) < need:
            self._refill()
        ids, self.ids = self.ids[:need], self.ids[need:]
        counted, self.counted = self.counted[:need], self.counted[need:]
        shape = (rows, WINDOW + 1)
        return torch.from_numpy(ids.reshape(shape)), torch.from_numpy(counted.reshape(shape))


def mixture(tokenizer: Tokenizer, documents: list[Document], shares: dict[str, float], seed: int) -> list[Piece]:
    """Pieces of all domains, cut so that tokens stand in the given shares of the largest one."""
    chosen: list[Piece] = []
    sizes: dict[str, int] = {}
    for domain, share in sorted(shares.items(), key=lambda item: -item[1]):
        pieces = encode(tokenizer, [d for d in documents if d.domain == domain], seed)
        random.Random(seed).shuffle(pieces)
        total = sum(len(p.ids) for p in pieces)
        largest = max(sizes, key=lambda name: shares[name], default=None)
        wanted = total if largest is None else int(sizes[largest] * share / shares[largest])
        kept = _take(pieces, wanted)
        sizes[domain] = sum(len(p.ids) for p in kept)
        chosen += kept
    print("training tokens per epoch:", sizes, flush=True)
    return chosen


def _take(pieces: list[Piece], tokens: int) -> list[Piece]:
    kept: list[Piece] = []
    for piece in pieces:
        if tokens <= 0:
            break
        kept.append(piece)
        tokens -= len(piece.ids)
    return kept
