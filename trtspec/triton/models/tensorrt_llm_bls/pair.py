"""The three models a request meets, as three questions: its token ids, a draft, and the target's verdict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from calls import Caller
from job import TO_PREPROCESSING, Job, Settings
from wire import Array, unpack_words

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
class Prompt:
    """What preprocessing made of a request. `words` are tensors that every LLM call gets."""

    ids: list[int]
    end_id: int
    stop_ids: tuple[tuple[int, ...], ...]
    words: dict[str, Array]


@dataclass(frozen=True)
class Draft:
    """Proposed tokens, possibly none, and their logits [n, vocab] if asked for."""

    tokens: list[int]
    logits: Array | None = None


@dataclass(frozen=True)
class Verdict:
    """New tokens of a target call, and its other tensors by name."""

    tokens: list[int]
    extras: dict[str, Array]


class Pair:
    """The pipeline's models on behalf of one request. Every call may raise CallFailed."""

    def __init__(self, job: Job, settings: Settings, caller: Caller) -> None:
        self._job = job
        self._settings = settings
        self._caller = caller
        self.prompt = self._preprocess()

    def draft(self, ids: list[int], count: int) -> Draft:
        """At most `count` tokens after `ids`. The draft may stop early at an end token or stop word."""
        wanted = [*_TOKENS, "generation_logits"] if self._job.draft_logits else _TOKENS
        asked = {"return_generation_logits": _flag(True)} if self._job.draft_logits else {}
        answer = self._ask(self._settings.draft, self._call(ids, count) | asked, wanted)
        tokens = _new_tokens(answer)[:count]
        if not self._job.draft_logits or not tokens:
            return Draft(tokens)
        logits = answer["generation_logits"]
        return Draft(tokens, logits.reshape(-1, logits.shape[-1])[: len(tokens)])

    def verify(self, ids: list[int], draft: Draft) -> Verdict:
        """The accepted part of the draft and one token of the target's own; less where the target ends."""
        tensors = self._call(ids, len(draft.tokens) + 1) | self._asked()
        if draft.tokens:
            tensors["draft_input_ids"] = _int32([draft.tokens])
        if draft.logits is not None:
            tensors["draft_logits"] = draft.logits[None]
            if self._settings.acceptance_threshold is not None:
                tensors["draft_acceptance_threshold"] = np.array(
                    [[self._settings.acceptance_threshold]], dtype=np.float32
                )
        return self._target(tensors, self._wanted())

    def continue_alone(self, ids: list[int], count: int) -> Verdict:
        """`count` tokens of the target alone; fewer mean that it has ended."""
        tensors = self._call(ids, count) | self._asked() | self._job.target_only
        wanted = self._wanted()
        if "return_context_logits" in self._job.target_only:
            wanted.append("context_logits")
        return self._target(tensors, wanted)

    def _target(self, tensors: dict[str, Array], wanted: list[str]) -> Verdict:
        answer = self._ask(self._settings.target, tensors, wanted)
        return Verdict(_new_tokens(answer), answer)

    def _ask(self, model: str, tensors: dict[str, Array], wanted: list[str]) -> dict[str, Array]:
        """Call an LLM model, whose version may name inputs otherwise and lack some outputs."""
        names, lacks = self._settings.llm_names, self._settings.llm_lacks
        given = {names.get(name, name): array for name, array in tensors.items()}
        return self._caller.decoupled(model, given, [name for name in wanted if name not in lacks])

    def _preprocess(self) -> Prompt:
        inputs = self._job.inputs
        given = {theirs: inputs.array(ours) for ours, theirs in TO_PREPROCESSING.items() if ours in inputs}
        wanted = ["INPUT_ID", "REQUEST_INPUT_LEN", "STOP_WORDS_IDS", "BAD_WORDS_IDS", "EMBEDDING_BIAS"]
        answer = self._caller.plain("preprocessing", given, [*wanted, "OUT_END_ID", "OUT_PAD_ID"])
        length = int(answer["REQUEST_INPUT_LEN"].flat[0])
        words = {
            "end_id": answer["OUT_END_ID"],
            "pad_id": answer["OUT_PAD_ID"],
            "stop_words_list": answer["STOP_WORDS_IDS"],
            "bad_words_list": answer["BAD_WORDS_IDS"],
            "embedding_bias": answer["EMBEDDING_BIAS"],
        }
        return Prompt(
            ids=answer["INPUT_ID"].reshape(-1)[:length].tolist(),
            end_id=int(answer["OUT_END_ID"].flat[0]),
            stop_ids=unpack_words(answer["STOP_WORDS_IDS"]),
            words={name: array for name, array in words.items() if array.size},
        )

    def _call(self, ids: list[int], count: int) -> dict[str, Array]:
        generated = len(ids) - len(self.prompt.ids)
        min_tokens = self._job.min_tokens - generated
        return {
            "input_ids": _int32([ids]),
            "input_lengths": _int32([[len(ids)]]),
            "request_output_len": _int32([[count]]),
            "exclude_input_in_output": _flag(True),
            **({"min_tokens": _int32([[min_tokens]])} if min_tokens > 0 else {}),
            **self.prompt.words,
            **self._job.sampling,
        }

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
