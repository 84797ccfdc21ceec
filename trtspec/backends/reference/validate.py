"""Everything that can be wrong with a request, told at once and in one line."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trtspec.backends.reference.config import EngineConfig
from trtspec.backends.reference.request import Request


def check_request(request: Request, config: EngineConfig) -> None:
    """Raises ValueError for the first thing that the engine cannot do."""
    _check_lengths(request, config)
    _check_drafts(request, config)
    _check_numbers(request)
    _check_bias(request, config)
    for name, ids in (
        ("input_ids", request.input_ids),
        ("draft_ids", request.draft_ids),
        ("bad_words", [token for word in request.bad_words for token in word]),
        ("end_ids", request.end_ids),
    ):
        _check_ids(name, ids, config.vocab_size)
    if not all(request.stop_words) or not all(request.bad_words):
        raise ValueError("an empty id sequence in stop_words or bad_words")


def _check_lengths(request: Request, config: EngineConfig) -> None:
    given, drafts, new = len(request.input_ids), len(request.draft_ids), request.max_new_tokens
    if given == 0:
        raise ValueError("input_ids is empty")
    if new < 1:
        raise ValueError(f"max_new_tokens is {new}; it must be at least 1")
    if given + drafts > config.max_input_len:
        what = f"the input of {given} tokens" + (f" with {drafts} draft tokens" if drafts else "")
        raise ValueError(f"{what} is longer than the engine's max_input_len {config.max_input_len}")
    if given + max(new, drafts + 1) > config.max_seq_len:
        raise ValueError(
            f"{given} input tokens and {new} new tokens are more than the engine's max_seq_len {config.max_seq_len}"
        )


def _check_drafts(request: Request, config: EngineConfig) -> None:
    drafts = len(request.draft_ids)
    if drafts > config.max_draft_len:
        raise ValueError(f"{drafts} draft tokens are more than the engine's max_draft_len {config.max_draft_len}")
    if request.draft_logits is not None:
        shape, expected = tuple(request.draft_logits.shape), (drafts, config.vocab_size)
        if shape != expected:
            raise ValueError(f"draft_logits has shape {list(shape)}; expected {list(expected)} (drafts, vocabulary)")
    threshold = request.acceptance_threshold
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise ValueError(f"acceptance_threshold is {threshold}; it must be above 0 and at most 1")


def _check_numbers(request: Request) -> None:
    sampling = request.sampling
    if not 0.0 <= sampling.temperature < float("inf"):
        raise ValueError(f"temperature is {sampling.temperature}; it must be 0 (greedy) or positive")
    if sampling.top_k < 0:
        raise ValueError(f"top_k is {sampling.top_k}; it must be 0 (off) or positive")
    if sampling.top_p != sampling.top_p:
        raise ValueError("top_p is not a number")
    if sampling.seed is not None and not 0 <= sampling.seed < 2**64:
        raise ValueError(f"seed is {sampling.seed}; it must fit in 64 bits without a sign")
    if not 0.0 < request.repetition_penalty < float("inf"):
        raise ValueError(f"repetition_penalty is {request.repetition_penalty}; it must be positive")
    for name, value in (
        ("presence_penalty", request.presence_penalty),
        ("frequency_penalty", request.frequency_penalty),
    ):
        if not abs(value) < float("inf"):
            raise ValueError(f"{name} is {value}; it must be finite")
    if request.min_tokens < 0:
        raise ValueError(f"min_tokens is {request.min_tokens}; it cannot be negative")


def _check_bias(request: Request, config: EngineConfig) -> None:
    bias = request.embedding_bias
    if bias is None:
        return
    if bias.shape != (config.vocab_size,):
        raise ValueError(f"embedding_bias has shape {list(bias.shape)}; expected [{config.vocab_size}] (vocabulary)")
    if not np.isfinite(bias).all():
        raise ValueError("embedding_bias holds a value that is not finite; -1e9 forbids a token")


def _check_ids(name: str, ids: Iterable[int], vocab: int) -> None:
    bad = next((token for token in ids if not 0 <= token < vocab), None)
    if bad is not None:
        raise ValueError(f"{name} holds {bad}, which is not in the vocabulary of {vocab}")
