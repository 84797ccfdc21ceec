"""What each running request puts into the next forward pass, and what it takes out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trtspec.backends.reference.core import Core
from trtspec.backends.reference.longrope import settle
from trtspec.backends.reference.model import Feed
from trtspec.backends.reference.request import Update
from trtspec.backends.reference.sequence import Running, Step

PREFILL_BUDGET = 256
"""Prompt tokens per step over all sequences: bounds how long a long prompt delays its neighbours' next tokens."""
SHORT_RUN = 32
"""Runs up to this long (decode and verify steps, small remainders of a reused prompt) are outside the budget."""


@dataclass(frozen=True)
class Run:
    """One request's share of a step: its next `take` uncached tokens, and its drafts if those are its last."""

    running: Running
    take: int
    last: bool

    def feed(self) -> Feed:
        """Tokens for the model. Drafts must be in place by now."""
        r = self.running
        assert r.slot is not None
        tokens = r.ids[r.cached : r.cached + self.take]
        wanted = self.take if r.request.return_context_logits else int(self.last)
        if self.last and r.drafts:
            tokens = tokens + r.drafts
            wanted += len(r.drafts)
        return Feed(r.slot.number, r.cached, tokens, wanted)

    def absorb(self, rows: npt.NDArray[np.float32], best: Sequence[int]) -> tuple[Step, Update] | None:
        """Book the step's logits; None while the prompt is not through."""
        r = self.running
        if r.request.return_context_logits:
            r.context.append(rows[: self.take].copy())
        if not self.last:
            r.cached += self.take
            self._publish()
            return None
        own = len(r.drafts) + 1
        step = r.absorb(rows[-own:], best[-own:])
        if r.request.draft_ids and not r.finish:
            r.finish = "length"  # a verify request is one step
        self._publish()
        return step, r.update(step, rows[-own:])

    def _publish(self) -> None:
        """Let other requests copy this prompt's cache."""
        r = self.running
        if self.take > SHORT_RUN and r.slot is not None:
            r.slot.ids = r.ids[: r.cached]


def plan_step(running: Sequence[Running], boundary: int | None = None) -> list[Run]:
    """Every request with little left to compute, and long prompts in order of arrival up to the budget.

    `boundary` as :attr:`Core.boundary`.
    """
    if boundary is not None:
        for r in running:
            settle(r, boundary)
    runs: list[Run] = []
    budget = PREFILL_BUDGET
    for r in running:
        todo = len(r.ids) - r.cached
        take = todo
        if todo > SHORT_RUN:
            take = min(todo, budget)
            budget -= take
        if take:
            runs.append(Run(r, take, take == todo))
    return runs


def run_step(core: Core, runs: Sequence[Run]) -> Iterator[tuple[Run, Step, Update]]:
    """One forward pass; the requests that got tokens, with what they got."""
    feeds = [run.feed() for run in runs]
    logits = core.step(feeds)
    best = logits.argmax(1).tolist()
    at = 0
    for run, feed in zip(runs, feeds, strict=True):
        until = at + feed.wanted
        result = run.absorb(logits[at:until], best[at:until])
        at = until
        if result is not None:
            yield run, *result
