"""What the two LLM models are told in every call of one request. Built once where it does not change."""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
from job import Job, Settings
from prompt import Prompt
from wire import Array, int32, pack_words, unpack_words

DRAFT, TARGET = 0, 1
NEVER = -3e4
"""Bias that no token survives, and that a half-precision number can hold."""
_ASKED = {
    "return_log_probs": ["output_log_probs"],
    "return_generation_logits": ["generation_logits"],
    "return_perf_metrics": [
        "kv_cache_alloc_new_blocks",
        "kv_cache_reused_blocks",
        "kv_cache_alloc_total_blocks",
        "first_scheduled_time_ns",
        "first_token_time_ns",
        "last_token_time_ns",
    ],
}
"""What a request may ask of the target besides tokens."""


class Asking:
    """The input tensors of calls."""

    def __init__(self, job: Job, settings: Settings, prompt: Prompt) -> None:
        self._job = job
        self._sizes = settings.vocabularies
        self._base_seed = secrets.randbits(64) if job.seed is None else job.seed
        self._prompt = len(prompt.ids)
        self._sequence = np.empty((1, self._prompt + job.max_tokens), dtype=np.int32)
        self._sequence[0, : self._prompt] = prompt.ids
        self._held = 0
        self._highest = max(prompt.ids)
        self._unchanging = [self._of(role, prompt) for role in (DRAFT, TARGET)]
        asked = [name for name in _ASKED if job.inputs.flag(name)]
        self.asked = {name: flag(True) for name in asked}
        self.wanted = [output for name in asked for output in _ASKED[name]]
        """Outputs that `asked` brings."""

    def call(self, role: int, tokens: list[int], count: int) -> dict[str, Array]:
        """For `count` more tokens behind those of the answer so far.

        The engines see the whole sequence as prompt; they penalise it as one.
        """
        ids = self._ids(tokens)
        missing = max(0, self._job.min_tokens - len(tokens))
        return {
            **self._unchanging[role][count <= missing],
            "input_ids": ids,
            "input_lengths": int32([[ids.size]]),
            "request_output_len": int32([[count]]),
            "min_tokens": int32([[missing]]),
            **self._seed(len(tokens), role),
        }

    def draft_knows(self, tokens: list[int]) -> bool:
        """Whether the draft has all tokens of the sequence: one with fewer ids cannot go on from others."""
        size = self._sizes[DRAFT]
        if size is None:
            return True
        self._ids(tokens)
        return self._highest < size

    def _ids(self, tokens: list[int]) -> Array:
        """Prompt and answer; only what is new is written."""
        new = tokens[self._held :]
        if new:
            self._sequence[0, self._prompt + self._held : self._prompt + len(tokens)] = new
            self._highest = max(self._highest, *new)
            self._held = len(tokens)
        return self._sequence[:, : self._prompt + len(tokens)]

    def _of(self, role: int, prompt: Prompt) -> tuple[dict[str, Array], dict[str, Array]]:
        """What does not change, when ends may come and before."""
        always = {"exclude_input_in_output": flag(True), **self._job.sampling}
        bias = self._bias(role, prompt.words.get("embedding_bias"))
        # What the target does not have is the client's mistake, and the target says so.
        size = self._sizes[DRAFT] if role == DRAFT else None
        after, before = ({**always, **_within(words, size), **bias} for words in (prompt.words, prompt.words_before))
        return after, before

    def _bias(self, role: int, given: Array | None) -> dict[str, Array]:
        """The bias as wide as the model's vocabulary; a wider draft must not draw what the target does not know."""
        size = self._sizes[role]
        beyond = self._sizes[TARGET] if role == DRAFT and None not in self._sizes else None
        if size is None or (given is None and (beyond is None or beyond >= size)):
            return {}
        bias = np.zeros((1, size), dtype=np.float32)
        if given is not None:
            common = min(size, given.shape[-1])
            bias[:, :common] = given[:, :common]
        if beyond is not None:
            bias[:, beyond:] = NEVER
        return {"embedding_bias": bias}

    def _seed(self, generated: int, role: int) -> dict[str, Array]:
        """The seed of one call.

        TensorRT-LLM begins its random numbers anew with each call, and its seed is 0 where none is sent: with one seed
        for all calls it would draw the same numbers in every round, and judge a draft token by the number that drew it.
        So each call has its own; the target's first keeps the request's, so that a short answer without drafts is that
        of the target asked directly.
        """
        if self._job.greedy:
            return {}
        if generated == 0 and role == TARGET:
            return {"seed": np.array([[self._base_seed]], dtype=np.uint64)}
        seed = hashlib.blake2b(f"{self._base_seed}/{generated}/{role}".encode(), digest_size=8).digest()
        return {"seed": np.frombuffer(seed, dtype=np.uint64).reshape(1, 1)}


def flag(value: bool) -> Array:
    """A truth value with its batch dimension."""
    return np.array([[value]], dtype=np.bool_)


def _within(words: dict[str, Array], size: int | None) -> dict[str, Array]:
    """Without ids that a model of this size does not have, which an engine refuses or, worse, does not."""
    if size is None:
        return words
    found = dict(words)
    if int(words["end_id"].flat[0]) >= size:
        del found["end_id"]
    for name in ("bad_words_list", "stop_words_list"):
        if name in words and words[name][:, 0].max() >= size:
            found[name] = pack_words([[list(word) for word in unpack_words(words[name]) if max(word) < size]])
    return {name: array for name, array in found.items() if array.size}
