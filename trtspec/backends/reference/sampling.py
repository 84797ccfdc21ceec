"""From a row of logits to a token: rules that forbid or penalise, filters, and the draw.

Random numbers are counter-based: a draw is a pure function of (seed, absolute position, purpose). One token at a time,
a verify call over several, and any batch around them therefore draw the same numbers. Where one seed goes through a
whole answer (speculation.py), token equality gives exactly the seeded answer of the target alone; the served pipeline
gives each call a seed of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.request import Request, Sampling

Row = npt.NDArray[np.float32]
Probabilities = npt.NDArray[np.float64]

TOKEN, ACCEPT, RESIDUAL = 0, 1, 2
"""Purposes of a random number; each has its own stream, so that a test is independent of the draw it judges."""

LARGEST = float(np.finfo(np.float32).max)
_MASK = 2**64 - 1


def fresh_seed() -> int:
    """A 64-bit seed for a request that brings none."""
    return int.from_bytes(os.urandom(8), "little")


def uniform(seed: int, position: int, purpose: int) -> float:
    """A number in [0, 1): SplitMix64 (Steele, Lea, Flood 2014) hashed over seed, then position and purpose."""
    state = _mix((seed + 0x9E3779B97F4A7C15) & _MASK)
    return (_mix((state + (4 * position + purpose + 1) * 0x9E3779B97F4A7C15) & _MASK) >> 11) * 2.0**-53


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def probabilities(row: Row, sampling: Sampling) -> Probabilities:
    """[vocab] the distribution that is drawn from: one-hot when greedy, else temperature, top-k, then top-p."""
    if sampling.greedy:
        out = np.zeros(row.shape[0])
        out[row.argmax()] = 1.0
        return out
    scores = row.astype(np.float64)
    scores /= sampling.temperature
    if 0 < sampling.top_k < scores.shape[0]:
        scores[_beyond_top_k(scores, sampling.top_k)] = -np.inf
    scores -= scores.max()
    weights = np.exp(scores, out=scores)
    weights /= weights.sum()
    if 0.0 < sampling.top_p < 1.0:
        weights[_beyond_top_p(weights, sampling.top_p)] = 0.0
        weights /= weights.sum()
    return weights


def softmax(row: Row) -> Probabilities:
    """[vocab] the distribution that a row of logits stands for."""
    return probabilities(row, Sampling())


def _beyond_top_k(scores: Probabilities, k: int) -> npt.NDArray[np.intp]:
    """All but the k best; of equal ones the lower ids stay, so that exactly k stay."""
    threshold = np.partition(scores, -k)[-k]
    equal = np.flatnonzero(scores == threshold)
    keep = k - int(np.count_nonzero(scores > threshold))
    return np.concatenate((np.flatnonzero(scores < threshold), equal[keep:]))


def _beyond_top_p(weights: Probabilities, top_p: float) -> npt.NDArray[np.intp]:
    """All behind the smallest set of best tokens whose weights reach `top_p`; the best one always stays."""
    order = np.argsort(-weights, kind="stable")
    reached = np.cumsum(weights[order])
    return order[int(np.searchsorted(reached, top_p)) + 1 :]


def draw(weights: Probabilities, u: float) -> int:
    """The token at quantile `u` of unnormalised `weights` with a positive sum."""
    reached = np.cumsum(weights)
    at = int(np.searchsorted(reached, u * reached[-1], side="right"))
    if at >= weights.shape[0] or weights[at] == 0.0:  # rounding at the very end
        return int(np.flatnonzero(weights)[-1])
    return at


class Rules:
    """What a request forbids or penalises. Counts cover the whole sequence, prompt included."""

    def __init__(self, request: Request, vocab: int) -> None:
        self._request = request
        self._ends = np.array(sorted(request.end_ids), dtype=np.int64)
        self._vocab = vocab
        self._penalties = (
            request.repetition_penalty != 1.0 or request.presence_penalty != 0.0 or request.frequency_penalty != 0.0
        )
        self._bias = None if request.embedding_bias is None else request.embedding_bias.astype(np.float32)
        self._counts: npt.NDArray[np.int64] | None = None
        self._counted = 0
        self.constant = self._penalties or bool(request.bad_words) or self._bias is not None
        """True when some rule may change any row."""

    def applies(self, emitted: int) -> bool:
        """True when the row of the next token may have to change."""
        return self.constant or (emitted < self._request.min_tokens and self._ends.size > 0)

    def apply(self, row: Row, ids: Sequence[int], emitted: int) -> Row:
        """A changed copy of `row`, the logits that follow `ids`."""
        out = row.copy() if self._bias is None else row + self._bias
        if self._penalties:
            self._penalise(out, ids)
        for *before, last in self._request.bad_words:
            if not before or list(ids[-len(before) :]) == before:
                out[last] = -np.inf
        if emitted < self._request.min_tokens:
            out[self._ends] = -np.inf
        return out

    def _penalise(self, out: Row, ids: Sequence[int]) -> None:
        """Repetition (Keskar et al. 2019): positive logits divided, negative multiplied; the others subtract.

        TensorRT-LLM subtracts after it has divided by the temperature, which comes later here: hence the factor.
        """
        r, after = self._request, self._request.sampling.temperature or 1.0
        counts = self._counts_of(ids)
        seen = np.flatnonzero(counts)
        values = out[seen]
        with np.errstate(over="ignore"):  # clipped below: several infinite logits have no distribution
            values = np.where(values > 0, values / r.repetition_penalty, values * r.repetition_penalty)
        values = values - after * (r.presence_penalty + r.frequency_penalty * counts[seen])
        out[seen] = np.clip(values, -LARGEST, LARGEST)

    def _counts_of(self, ids: Sequence[int]) -> npt.NDArray[np.int64]:
        if self._counts is None or len(ids) < self._counted:
            self._counts, self._counted = np.zeros(self._vocab, np.int64), 0
        if self._counted < len(ids):
            self._counts += np.bincount(ids[self._counted :], minlength=self._vocab)
            self._counted = len(ids)
        return self._counts


def log_probability(row: Row, token: int) -> float:
    """log p of `token` under the model's own distribution (before rules, temperature and filters)."""
    best = float(row.max())
    return float(row[token]) - best - float(np.log(np.exp(row - best, dtype=np.float64).sum()))
