"""Speculation inside one process: draft and target share a worker, and every round is batched over all streams.

A round lets the draft propose up to K tokens for each stream, one batched step per token, and the target judge all of
them in one batched verify step. Both keep their caches; what was rejected is forgotten by moving the position back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from trtspec.analysis.acceptance import RoundHistogram
from trtspec.backends.reference.config import EngineConfig
from trtspec.backends.reference.core import Core
from trtspec.backends.reference.longrope import enter, room
from trtspec.backends.reference.model import Feed
from trtspec.backends.reference.plan import PREFILL_BUDGET, plan_step, run_step
from trtspec.backends.reference.request import Request, Update
from trtspec.backends.reference.sampling import Probabilities
from trtspec.backends.reference.sequence import Running, Step
from trtspec.backends.reference.slots import Slot
from trtspec.backends.reference.worker import Worker
from trtspec.errors import ConfigError

Acceptance = Literal["tokens", "logits"]


class Stream(Running):
    """A request with a place in both caches."""

    def __init__(self, request: Request, on_update: Callable[[Update], None], vocab: int, draft_len: int) -> None:
        super().__init__(request, on_update, vocab)
        self.draft_slot: Slot | None = None
        self.draft_cached = 0
        """leading ids whose keys and values stand in the draft's slot"""
        self.rounds = [[[0] * (draft_len + 1) for _ in range(draft_len + 1)] for _ in range(2)]
        """[uncut, cut][drafted][accepted], plain ints: an array element would cost more than the round's bookkeeping"""

    def room(self, draft_len: int, boundary: int | None = None) -> int:
        """Draft tokens for this round: the last token always comes from the target, whose `boundary` they heed."""
        return min(draft_len, self.request.max_new_tokens - self.emitted - 1, room(boundary, len(self.ids)))

    def proposed(self, draft_row: npt.NDArray[np.float32]) -> Probabilities:
        """The own draft draws as the request says, by the same rules as the target."""
        return self.distribution(draft_row, self.ids, self.emitted)

    def count(self, step: Step) -> None:
        """Book a round."""
        self.rounds[step.cut][step.drafted][step.accepted] += 1


class SpeculativePair(Worker[Stream]):
    """Speculative decoding with the interface of an engine; the last update carries the request's histogram.

    `acceptance`: "tokens" gives exactly the target's own (seeded) tokens; "logits" keeps only the distribution, and
    accepts more when sampling. Raises ConfigError when the two engines do not fit together.
    """

    def __init__(self, target: Core, draft: Core, draft_len: int, acceptance: Acceptance = "tokens") -> None:
        self._target, self._draft, self._acceptance = target, draft, acceptance
        self.draft_len = draft_len
        self.histogram = RoundHistogram.empty(draft_len)
        """rounds of all finished requests"""
        super().__init__(_common_limits(target.config, draft.config, draft_len), "speculative-pair")

    def _make(self, request: Request, on_update: Callable[[Update], None]) -> Stream:
        if request.return_context_logits:
            raise ValueError("return_context_logits is not available from a speculative pair")
        return Stream(request, on_update, self.config.vocab_size, self.draft_len)

    def _admit(self, running: Stream) -> bool:
        target = self._target.admit(running.ids)
        if target is None:
            return False
        draft = self._draft.admit(running.ids)
        if draft is None:
            self._target.release(target[0], running.ids[: target[1]])
            return False
        running.slot, running.cached = target
        running.draft_slot, running.draft_cached = draft
        return True

    def _release(self, running: Stream, intact: bool) -> None:
        if running.slot is not None and running.draft_slot is not None:
            self._target.release(running.slot, running.ids[: running.cached] if intact else [])
            self._draft.release(running.draft_slot, running.ids[: running.draft_cached] if intact else [])

    def _cores(self) -> tuple[Core, ...]:
        return (self._target, self._draft)

    def _advance(self, running: list[Stream]) -> None:
        runs = plan_step(running, self._target.boundary)
        streams = [run.running for run in runs if run.last and isinstance(run.running, Stream)]
        if self.draft_len:
            self._propose(streams)
        before = {id(stream): len(stream.ids) for stream in streams}
        for run, step, update in run_step(self._target, runs):
            stream = run.running
            assert isinstance(stream, Stream)
            stream.count(step)
            stream.draft_cached = min(stream.draft_cached, before[id(stream)] + step.accepted)
            if update.finished:
                rounds = np.array(stream.rounds, dtype=np.int64)
                self.histogram += RoundHistogram.from_wire(rounds)
                update = replace(update, histogram=rounds)
            self._report(stream, update)

    def _propose(self, streams: list[Stream]) -> None:
        """Fill `drafts` of every stream by batched draft steps; the first one catches up with the target."""
        rooms = {id(stream): stream.room(self.draft_len, self._target.boundary) for stream in streams}
        active = [stream for stream in streams if rooms[id(stream)] > 0]
        self._catch_up(active, rooms)
        kept: dict[int, list[npt.NDArray[np.float32]]] = {id(stream): [] for stream in active}
        while active:
            logits = self._draft.step([_draft_feed(stream) for stream in active])
            best = logits.argmax(1).tolist()
            for row, token, stream in zip(logits, best, active, strict=True):
                ids = stream.ids + stream.drafts if stream.drafts else stream.ids
                stream.draft_cached = len(ids)
                stream.drafts.append(stream.choose(row, token, ids, stream.emitted + len(stream.drafts)))
                if self._acceptance == "logits":
                    kept[id(stream)].append(row)
            active = [s for s in active if len(s.drafts) < rooms[id(s)] and s.drafts[-1] not in s.request.end_ids]
        if self._acceptance == "logits":
            for stream in streams:
                if stream.drafts:
                    stream.draft_rows = np.stack(kept[id(stream)])

    def _catch_up(self, streams: list[Stream], rooms: Mapping[int, int]) -> None:
        """Run the draft over long prompts in bounded pieces, up to what one step may take.

        A draft with longrope changes sides for a whole round: that can cost accepted tokens, never wrong ones.
        """
        for stream in streams:
            slot = stream.draft_slot
            assert slot is not None
            if enter(slot, self._draft.boundary, len(stream.ids) + rooms[id(stream)]):
                stream.draft_cached = 0
            while len(stream.ids) - stream.draft_cached > PREFILL_BUDGET:
                piece = stream.ids[stream.draft_cached : stream.draft_cached + PREFILL_BUDGET]
                self._draft.step([Feed(slot.number, stream.draft_cached, piece, 0)])
                stream.draft_cached += len(piece)


def _draft_feed(stream: Stream) -> Feed:
    """What the draft has not seen yet: after a fully accepted round its own last token and the target's."""
    assert stream.draft_slot is not None
    tokens = stream.drafts[-1:] if stream.drafts else stream.ids[stream.draft_cached :]
    return Feed(stream.draft_slot.number, stream.draft_cached, tokens, 1)


def _common_limits(target: EngineConfig, draft: EngineConfig, draft_len: int) -> EngineConfig:
    if target.vocab_size != draft.vocab_size:
        raise ConfigError(
            "the draft's vocabulary differs from the target's", found=draft.vocab_size, expected=str(target.vocab_size)
        )
    if not 0 <= draft_len <= target.max_draft_len:
        raise ConfigError(
            "draft_len is outside the target engine's limit", found=draft_len, expected=f"0 to {target.max_draft_len}"
        )
    return replace(
        target,
        max_batch_size=min(target.max_batch_size, draft.max_batch_size),
        max_input_len=min(target.max_input_len, draft.max_input_len),
        max_seq_len=min(target.max_seq_len, draft.max_seq_len),
        max_draft_len=0,
    )
