"""A running request: its tokens, what is cached of them, and how a step's logits become new tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.acceptance import accepts, residual
from trtspec.backends.reference.request import FinishReason, Request, Update
from trtspec.backends.reference.sampling import (
    ACCEPT,
    RESIDUAL,
    TOKEN,
    Probabilities,
    Rules,
    draw,
    fresh_seed,
    log_probability,
    probabilities,
    softmax,
    uniform,
)
from trtspec.backends.reference.slots import Slot

Rows = npt.NDArray[np.float32]


@dataclass
class Step:
    """What one step added; turned into an Update."""

    ids: list[int]
    rows: list[int]
    """the row of logits each id came from"""
    drafted: int = 0
    accepted: int = 0
    """kept draft tokens"""
    cut: bool = False
    """ended inside its accepted draft tokens, before the target's own token"""


class Running:
    """Mutable state of one request; owned by the worker thread."""

    def __init__(self, request: Request, on_update: Callable[[Update], None], vocab: int) -> None:
        self.request, self.on_update = request, on_update
        self.ids: list[int] = list(request.input_ids)
        self.slot: Slot | None = None
        self.cached = 0
        """leading ids whose keys and values stand in the slot"""
        self.emitted = 0
        self.accepted = 0
        self.drafted = 0
        self.finish: FinishReason = ""
        self.cancelled = False
        self.drafts: list[int] = list(request.draft_ids)
        """proposed tokens that the next step judges"""
        self.draft_rows: Rows | None = request.draft_logits
        self.threshold = request.acceptance_threshold
        self.context: list[Rows] = []
        sampling = request.sampling
        self._greedy = sampling.greedy
        self._seed = sampling.seed if sampling.seed is not None else (0 if self._greedy else fresh_seed())
        self._rules = Rules(request, vocab)

    def cancel(self) -> None:
        """Ask for an end before the next step."""
        self.cancelled = True

    def keep_drafts(self, most: int) -> None:
        """Judge no more than the first `most` drafts."""
        if len(self.drafts) > most:
            self.drafts = self.drafts[:most]
            self.draft_rows = None if self.draft_rows is None else self.draft_rows[:most]

    def choose(self, row: Rows, best: int, ids: Sequence[int], emitted: int) -> int:
        """The token after `ids`; `best` is the row's argmax, so that plain greedy steps do no work per token."""
        rules = self._rules.applies(emitted)
        if self._greedy:
            return int(self._rules.apply(row, ids, emitted).argmax()) if rules else best
        return draw(self.distribution(row, ids, emitted), uniform(self._seed, len(ids), TOKEN))

    def distribution(self, row: Rows, ids: Sequence[int], emitted: int) -> Probabilities:
        """What the token after `ids` is drawn from."""
        if self._rules.applies(emitted):
            row = self._rules.apply(row, ids, emitted)
        return probabilities(row, self.request.sampling)

    def proposed(self, draft_row: Rows) -> Probabilities:
        """What a draft token was drawn from: a caller's logits already say so."""
        return softmax(draft_row)

    def absorb(self, rows: Rows, best: Sequence[int]) -> Step:
        """Append what `rows` [1 + drafts, vocab] (argmax `best`) give: accepted drafts and one own token.

        Without `draft_rows` a draft is accepted when it is the target's own token, with them by the rejection rule.
        Sets `finish` when an end is reached; `cached` counts what the step wrote and kept. The drafts are used up.
        """
        step = Step([], [], drafted=len(self.drafts))
        self.cached = len(self.ids)
        self.drafted += step.drafted
        drafts, draft_rows, self.drafts, self.draft_rows = self.drafts, self.draft_rows, [], None
        for i, draft in enumerate((*drafts, None)):
            if draft is None or draft_rows is None or self._greedy:
                token = self.choose(rows[i], best[i], self.ids, self.emitted)
            else:
                token = self._judge(rows[i], draft_rows[i], draft)
            agreed = token == draft
            kept = self._append(token, i, step)
            step.accepted += agreed and kept
            if self.finish or not agreed:
                step.cut = agreed
                break
        self.cached += step.accepted
        self.accepted += step.accepted
        return step

    def _judge(self, row: Rows, draft_row: Rows, draft: int) -> int:
        """`draft` when the rejection rule accepts it, else a token of the residual."""
        target = self.distribution(row, self.ids, self.emitted)
        proposed = self.proposed(draft_row)
        position = len(self.ids)
        u = uniform(self._seed, position, ACCEPT) if self.threshold is None else self.threshold
        if accepts(target, proposed, draft, u):
            return draft
        return draw(residual(target, proposed), uniform(self._seed, position, RESIDUAL))

    def _append(self, token: int, row: int, step: Step) -> bool:
        """False when `token` is an end id, which is not part of the answer."""
        if token in self.request.end_ids and self.emitted >= self.request.min_tokens:
            self.finish = "end_id"
            return False
        self.ids.append(token)
        self.emitted += 1
        step.ids.append(token)
        step.rows.append(row)
        if self._stopped():
            self.finish = "stop_words"
        elif self.emitted >= self.request.max_new_tokens:
            self.finish = "length"
        return True

    def _stopped(self) -> bool:
        """A stop sequence may begin in the input: a continued call must stop where an uninterrupted one would."""
        ids = self.ids
        return any(tuple(ids[-len(word) :]) == word for word in self.request.stop_words)

    def update(self, step: Step, rows: Rows | None) -> Update:
        """The public form of `step`; `rows` are the step's logits."""
        r = self.request
        logits = log_probs = context = None
        if rows is not None and r.return_generation_logits:
            logits = rows[step.rows]
        if rows is not None and r.return_log_probs:
            pairs = zip(step.rows, step.ids, strict=True)
            log_probs = np.array([log_probability(rows[i], t) for i, t in pairs], dtype=np.float32)
        if self.context:
            context, self.context = np.concatenate(self.context), []
        return Update(
            new_ids=tuple(step.ids),
            finished=bool(self.finish),
            finish_reason=self.finish,
            accepted=self.accepted,
            drafted=self.drafted,
            logits=logits,
            log_probs=log_probs,
            context_logits=context,
        )
