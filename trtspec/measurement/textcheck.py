"""A look at the prompts themselves: near-duplicates, and token salad that no user ever wrote.

Both are judged on what distinguishes the prompts of a set: what all begin or end with (a chat template, worked
examples) is set aside first.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Ids = Callable[[str], Sequence[int]]
SHINGLE = 5
"""Characters of one shingle."""
SIMILAR = 0.8
"""Jaccard similarity of two texts' shingles from which the later counts as a near-duplicate (Lee et al. 2022)."""
_BANDS, _ROWS = 32, 4
"""Of MinHash (Broder 1997): texts of similarity 0.8 share no band once in 20 million times."""
_PRIME = np.uint64((1 << 61) - 1)

FEWEST = 8
"""Tokens below which a prompt tells nothing about its tokens."""
ALONE = 64
"""Tokens from which one prompt is judged by itself; shorter ones are judged together."""


def distinct_parts(texts: Sequence[str]) -> list[str]:
    """The texts without what all of them begin and end with; as they are where there is only one."""
    if len(texts) < 2:
        return list(texts)
    start = _shared(list(texts))
    rest = [text[start:] for text in texts]
    end = _shared([text[::-1] for text in rest])
    return [text[: len(text) - end] for text in rest]


def _shared(texts: Sequence[str]) -> int:
    """Characters that all texts begin with: those of the first and the last in order."""
    low, high = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))


def near_duplicates(texts: Sequence[str]) -> list[int]:
    """Places of texts that share most of their shingles with an earlier one. Equal texts count too."""
    parts = distinct_parts(texts)
    # Texts that differ in a number alone have no shingle of their own: what they share is all there is to them.
    whole = all(len(part) < SHINGLE for part in parts)
    sets = [_shingles(text) for text in (texts if whole else parts)]
    found = {later for earlier, later in _candidates(sets) if _similar(sets[earlier], sets[later])}
    return sorted(found)


def random_looking(texts: Sequence[str], ids: Ids, vocab_size: int) -> list[int]:
    """Places of texts whose tokens look drawn at random from the vocabulary.

    Written text uses few tokens often: two of its tokens are equal once in 30 to 400 pairs, and the frequent ones have
    the low numbers that training gave them (or, for other scripts, a few ranges). Draws from the whole vocabulary are
    equal once in `vocab_size` pairs and spread evenly; decoding and encoding them again changes that only a little.
    So a prompt is random where both its repetitions are rare and its ids are spread evenly. Measured on ten tokenizers
    with 2,048 to 151,669 tokens (docs/measuring.md).
    """
    rows = [_tokens(ids(text)) for text in distinct_parts(texts)]
    long = [i for i, row in enumerate(rows) if len(row) >= ALONE and _salad([row], vocab_size)]
    short = [i for i, row in enumerate(rows) if FEWEST <= len(row) < ALONE]
    return sorted([*long, *(short if short and _salad([rows[i] for i in short], vocab_size) else ())])


def _salad(rows: Sequence[NDArray[np.int64]], vocab_size: int) -> bool:
    """Whether tokens of these texts repeat (within a text) as rarely, and are spread as evenly, as random draws."""
    pairs = sum(len(row) * (len(row) - 1) / 2 for row in rows)
    together = np.concatenate(rows)
    if len(together) < ALONE:
        return False
    from scipy import stats  # takes a third of a second, and every verb that reads a result would wait for it

    repeats = sum(_equal_pairs(row) for row in rows)
    spread = float(stats.kstest((together + 0.5) / vocab_size, "uniform").statistic)
    chance = float(stats.kstwo.ppf(0.99, len(together)))
    return bool(repeats / pairs <= max(0.002, 50 / vocab_size) and spread <= max(0.2, chance))


def _equal_pairs(row: NDArray[np.int64]) -> int:
    counts = np.unique(row, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _tokens(ids: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(ids, np.int64).reshape(-1)


def _shingles(text: str) -> frozenset[int]:
    """Hashed runs of characters, blind to case and to how much white space there is."""
    plain = re.sub(r"\s+", " ", text.casefold()).strip().encode()
    return frozenset(zlib.crc32(plain[i : i + SHINGLE]) for i in range(max(1, len(plain) - SHINGLE + 1)))


def _similar(one: frozenset[int], other: frozenset[int]) -> bool:
    return len(one & other) >= SIMILAR * len(one | other)


def _candidates(sets: Sequence[frozenset[int]]) -> Iterator[tuple[int, int]]:
    """Pairs worth comparing: those that share a band of their MinHash signatures."""
    rng = np.random.default_rng(0)
    factors, shifts = (rng.integers(1, 1 << 31, size=_BANDS * _ROWS, dtype=np.uint64) for _ in range(2))
    buckets: dict[tuple[int, bytes], list[int]] = {}
    for place, shingles in enumerate(sets):
        values = np.fromiter(shingles, np.uint64, len(shingles))
        signature = ((values[:, None] * factors + shifts) % _PRIME).min(axis=0).reshape(_BANDS, _ROWS)
        for band in range(_BANDS):
            buckets.setdefault((band, signature[band].tobytes()), []).append(place)
    yield from {pair for places in buckets.values() for pair in combinations(places, 2)}
