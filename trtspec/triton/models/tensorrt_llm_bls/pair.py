"""The two LLM models on behalf of one request, as two questions: a draft, and the target's verdict on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from asking import DRAFT, TARGET, Asking, flag
from calls import Caller
from job import Job, Settings
from prompt import Prompt
from sampled import sampled
from wire import Array, int32
from writing import Limits

_TOKENS = ["output_ids", "sequence_length"]


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
    """Both models. Every call may raise CallFailed; `tokens` are those of the answer so far."""

    def __init__(self, job: Job, settings: Settings, caller: Caller) -> None:
        self._job = job
        self._settings = settings
        self._caller = caller
        self.prompt = Prompt.of(job, settings, caller)
        self._asking = Asking(job, settings, self.prompt)
        self.draft_knows = self._asking.draft_knows

    def limits(self) -> Limits:
        """What ends the answer."""
        job, prompt = self._job, self.prompt
        least = min(job.min_tokens, job.max_tokens)
        include = self._settings.include_stop_words
        return Limits(job.max_tokens, prompt.end_ids, job.stop_texts, prompt.stop_ids, least, include)

    def draft(self, tokens: list[int], count: int) -> Draft:
        """At most `count` tokens, up to an end token or stop word."""
        below = len(tokens) < self._job.min_tokens
        tensors = self._asking.call(DRAFT, tokens, count)
        if self._job.draft_logits and not (below and self._settings.fast_logits):
            return self._draft_by_logits(tensors, count, below)
        answer = self._ask(self._settings.draft, tensors, _TOKENS)
        return Draft(self._usable(_new_tokens(answer)[:count]))

    def verify(self, tokens: list[int], draft: Draft) -> Verdict:
        """The accepted part of the draft and one token of the target's own; less where the target ends."""
        tensors = self._asking.call(TARGET, tokens, len(draft.tokens) + 1) | self._asking.asked
        if draft.tokens:
            tensors["draft_input_ids"] = int32([draft.tokens])
        if draft.logits is not None:
            tensors["draft_logits"] = draft.logits
            if self._job.threshold is not None:
                tensors["draft_acceptance_threshold"] = np.array([[self._job.threshold]], dtype=np.float32)
        verdict = self._target(tensors)
        count = len(verdict.tokens)
        if verdict.tokens == draft.tokens[:count] and draft.tokens[count : count + 1] == [self.prompt.end_id]:
            # Engines keep the end token to themselves; this one was proposed, and accepted.
            return Verdict([*verdict.tokens, self.prompt.end_id], verdict.extras, count)
        return verdict

    def continue_alone(self, tokens: list[int], count: int) -> Verdict:
        """`count` tokens of the target alone; fewer mean that it has ended."""
        tensors = self._asking.call(TARGET, tokens, count) | self._asking.asked | self._job.target_only
        return self._target(tensors, ["context_logits"] if "return_context_logits" in self._job.target_only else [])

    def search(self, beams: int) -> dict[str, Array]:
        """The target's whole answer by beam search."""
        tensors = self._asking.call(TARGET, [], self._job.max_tokens) | self._asking.asked | self._job.target_only
        tensors["beam_width"] = int32([[beams]])
        sequences = self._job.inputs.integer("num_return_sequences", 1)
        if sequences > 1:
            tensors["num_return_sequences"] = int32([[sequences]])
        scores = ["cum_log_probs"] if self._job.inputs.flag("return_log_probs") else []
        return self._ask(self._settings.target, tensors, [*_TOKENS, *self._asking.wanted, *scores])

    def _draft_by_logits(self, tensors: dict[str, Array], count: int, below: bool) -> Draft:
        """The draft must be free to propose the end token, so it is not told which that is.

        One that is told hands out only the tokens that are no end, with the chances of a draft that may end.
        """
        tensors["return_generation_logits"] = flag(True)
        if not below:
            tensors.pop("end_id", None)
        answer = self._ask(self._settings.draft, tensors, [*_TOKENS, "generation_logits"])
        tokens = _new_tokens(answer)[:count]
        if self._settings.fast_logits:
            # The handle stands for all tokens of the call.
            return Draft(tokens, answer["generation_logits"].reshape(1, 1, -1)) if tokens else Draft([])
        tokens = self._usable(tokens)
        if not tokens:
            return Draft([])
        logits = answer["generation_logits"]
        return Draft(tokens, self._drawn(logits.reshape(-1, logits.shape[-1])[: len(tokens)], below)[None])

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

    def _target(self, tensors: dict[str, Array], more: list[str] | None = None) -> Verdict:
        answer = self._ask(self._settings.target, tensors, [*_TOKENS, *self._asking.wanted, *(more or [])])
        tokens = _new_tokens(answer)
        return Verdict(tokens, answer, len(tokens))

    def _ask(self, model: str, tensors: dict[str, Array], wanted: list[str]) -> dict[str, Array]:
        """Call an LLM model, whose version may name inputs otherwise and lack some outputs."""
        names, lacks = self._settings.llm_names, self._settings.llm_lacks
        given = {names.get(name, name): array for name, array in tensors.items()}
        return self._caller.decoupled(model, given, [name for name in wanted if name not in lacks])


def _new_tokens(answer: dict[str, Array]) -> list[int]:
    length = int(answer["sequence_length"].flat[0])
    tokens: list[int] = answer["output_ids"].reshape(-1)[:length].tolist()
    return tokens
