"""The two LLM models on behalf of one request, as two questions: a draft, and the target's verdict on it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import numpy as np
from calls import Caller
from job import Job, Settings
from prompt import Prompt
from sampled import sampled
from wire import Array
from writing import Limits

DRAFT, TARGET = 0, 1
NEVER = -3e4
"""Bias that no token survives, and that a half-precision number can hold."""
_TOKENS = ["output_ids", "sequence_length"]
_PERF = [
    "kv_cache_alloc_new_blocks",
    "kv_cache_reused_blocks",
    "kv_cache_alloc_total_blocks",
    "first_scheduled_time_ns",
    "first_token_time_ns",
    "last_token_time_ns",
]


@dataclass(frozen=True)
class Draft:
    """Proposed tokens, possibly none, and by logits the tensor [1, n, vocab] that tells what they were drawn from."""

    tokens: list[int]
    logits: Array | None = None


@dataclass(frozen=True)
class Verdict:
    """New tokens of a target call, and its other tensors by name. The last token may be an end token, if proposed."""

    tokens: list[int]
    extras: dict[str, Array]
    own: int
    """Tokens that the target handed out: without that end token."""


class Pair:
    """Both models. Every call may raise CallFailed."""

    def __init__(self, job: Job, settings: Settings, caller: Caller) -> None:
        self._job = job
        self._settings = settings
        self._caller = caller
        self._base_seed = secrets.randbits(64) if job.seed is None else job.seed
        self.prompt = Prompt.of(job, settings, caller)

    def limits(self) -> Limits:
        """What ends the answer."""
        job, prompt = self._job, self.prompt
        least = min(job.min_tokens, job.max_tokens)
        return Limits(job.max_tokens, prompt.end_ids, job.stop_texts, prompt.stop_ids, least)

    def draft(self, ids: list[int], count: int) -> Draft:
        """At most `count` tokens after `ids`, up to an end token or stop word.

        By logits the draft must be free to propose the end token, so it is not told which that is: a draft that
        ends there by itself hands out only the tokens that are no end, with the chances of a draft that may end.
        """
        below = self._below(ids)
        by_logits = self._job.draft_logits and not (below and self._settings.fast_logits)
        tensors = self._call(ids, count, DRAFT)
        if by_logits:
            tensors["return_generation_logits"] = _flag(True)
            if not below:
                tensors.pop("end_id", None)
        wanted = [*_TOKENS, "generation_logits"] if by_logits else _TOKENS
        answer = self._ask(self._settings.draft, tensors, wanted)
        tokens = _new_tokens(answer)[:count]
        if by_logits and self._settings.fast_logits:
            # The handle stands for all tokens of the call.
            return Draft(tokens, answer["generation_logits"].reshape(1, 1, -1)) if tokens else Draft([])
        tokens = self._usable(tokens)
        if not by_logits or not tokens:
            return Draft(tokens)
        logits = answer["generation_logits"]
        return Draft(tokens, self._drawn(logits.reshape(-1, logits.shape[-1])[: len(tokens)], below)[None])

    def verify(self, ids: list[int], draft: Draft) -> Verdict:
        """The accepted part of the draft and one token of the target's own; less where the target ends."""
        tensors = self._call(ids, len(draft.tokens) + 1, TARGET) | self._asked()
        if draft.tokens:
            tensors["draft_input_ids"] = _int32([draft.tokens])
        if draft.logits is not None:
            tensors["draft_logits"] = draft.logits
            if self._job.threshold is not None:
                tensors["draft_acceptance_threshold"] = np.array([[self._job.threshold]], dtype=np.float32)
        verdict = self._target(tensors, self._wanted())
        count = len(verdict.tokens)
        if verdict.tokens == draft.tokens[:count] and draft.tokens[count : count + 1] == [self.prompt.end_id]:
            # Engines keep the end token to themselves; this one was proposed, and accepted.
            return Verdict([*verdict.tokens, self.prompt.end_id], verdict.extras, count)
        return verdict

    def continue_alone(self, ids: list[int], count: int) -> Verdict:
        """`count` tokens of the target alone; fewer mean that it has ended."""
        tensors = self._call(ids, count, TARGET) | self._asked() | self._job.target_only
        wanted = self._wanted()
        if "return_context_logits" in self._job.target_only:
            wanted.append("context_logits")
        return self._target(tensors, wanted)

    def search(self, beams: int) -> dict[str, Array]:
        """The target's whole answer by beam search."""
        tensors = self._call(self.prompt.ids, self._job.max_tokens, TARGET) | self._asked() | self._job.target_only
        tensors["beam_width"] = _int32([[beams]])
        sequences = self._job.inputs.integer("num_return_sequences", 1)
        if sequences > 1:
            tensors["num_return_sequences"] = _int32([[sequences]])
        scores = ["cum_log_probs"] if self._job.inputs.flag("return_log_probs") else []
        return self._ask(self._settings.target, tensors, [*self._wanted(), *scores])

    def _below(self, ids: list[int]) -> bool:
        """Whether no end may come yet."""
        return len(ids) - len(self.prompt.ids) < self._job.min_tokens

    def _usable(self, tokens: list[int]) -> list[int]:
        """A draft up to its end token, and before any token that the target does not know."""
        _, width = self._settings.vocabularies
        for i, token in enumerate(tokens):
            if width is not None and token >= width:
                return tokens[:i]
            if token in self.prompt.end_ids:
                return tokens[: i + 1]
        return tokens

    def _drawn(self, logits: Array, below: bool) -> Array:
        """The logits of what the draft's tokens were drawn from, as wide as the target's."""
        inputs = self._job.inputs
        return sampled(
            logits,
            inputs.real("temperature", 1.0),
            inputs.integer("top_k", 0),
            inputs.real("top_p", 1.0),
            self.prompt.end_ids if below else frozenset(),
            self._settings.logits_width,
        )

    def _target(self, tensors: dict[str, Array], wanted: list[str]) -> Verdict:
        answer = self._ask(self._settings.target, tensors, wanted)
        tokens = _new_tokens(answer)
        return Verdict(tokens, answer, len(tokens))

    def _ask(self, model: str, tensors: dict[str, Array], wanted: list[str]) -> dict[str, Array]:
        """Call an LLM model, whose version may name inputs otherwise and lack some outputs."""
        names, lacks = self._settings.llm_names, self._settings.llm_lacks
        given = {names.get(name, name): array for name, array in tensors.items()}
        return self._caller.decoupled(model, given, [name for name in wanted if name not in lacks])

    def _call(self, ids: list[int], count: int, role: int) -> dict[str, Array]:
        """What every LLM call has. The engines see the whole sequence as prompt; they penalise it as one."""
        generated = len(ids) - len(self.prompt.ids)
        missing = max(0, self._job.min_tokens - generated)
        tensors = {
            "input_ids": _int32([ids]),
            "input_lengths": _int32([[len(ids)]]),
            "request_output_len": _int32([[count]]),
            "exclude_input_in_output": _flag(True),
            "min_tokens": _int32([[missing]]),
            **(self.prompt.words_before if count <= missing else self.prompt.words),
            **self._job.sampling,
            **self._seed(generated, role),
        }
        return tensors | self._bias(role)

    def _bias(self, role: int) -> dict[str, Array]:
        """The bias as wide as the model's vocabulary; a wider draft must not draw what the target does not know."""
        given, sizes = self.prompt.words.get("embedding_bias"), self._settings.vocabularies
        size = sizes[role]
        beyond = sizes[TARGET] if role == DRAFT and None not in sizes and sizes[DRAFT] > sizes[TARGET] else None
        if size is None or (given is None and beyond is None):
            return {}
        bias = np.zeros((1, size), dtype=np.float32)
        if given is not None:
            common = min(size, given.shape[-1])
            bias[:, :common] = given[:, :common]
        bias[:, beyond if beyond is not None else size :] = NEVER
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

    def _asked(self) -> dict[str, Array]:
        names = ("return_log_probs", "return_generation_logits", "return_perf_metrics")
        return {name: _flag(True) for name in names if self._job.inputs.flag(name)}

    def _wanted(self) -> list[str]:
        inputs = self._job.inputs
        return [
            *_TOKENS,
            *(["output_log_probs"] if inputs.flag("return_log_probs") else []),
            *(["generation_logits"] if inputs.flag("return_generation_logits") else []),
            *(_PERF if inputs.flag("return_perf_metrics") else []),
        ]


def _new_tokens(answer: dict[str, Array]) -> list[int]:
    length = int(answer["sequence_length"].flat[0])
    tokens: list[int] = answer["output_ids"].reshape(-1)[:length].tolist()
    return tokens


def _int32(values: object) -> Array:
    return np.array(values, dtype=np.int32)


def _flag(value: bool) -> Array:
    return np.array([[value]], dtype=np.bool_)
