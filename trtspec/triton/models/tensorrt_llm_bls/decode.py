"""The loop: rounds of draft and verify, then, if need be, the target alone."""

from __future__ import annotations

import time
from typing import Protocol

from adaptive import Adaptive
from calls import CallFailed
from pair import Draft, Pair, Verdict
from rounds import RoundDone, Rounds, agreeing
from writing import Writer

SPECULATIVE = "speculative"
PIECE = 64
"""Tokens of one target-only call: between calls we see stop words and clients that have gone."""
FIRST_PIECE, STREAM_PIECE = 1, 8
"""The same for a stream: the first token early, then in growing pieces."""


class Cancelled(Exception):
    """Nobody waits for the answer any more: the client has gone, or the time is over (watch.py knows which)."""


class Host(Protocol):
    """What the loop needs to know, and whom it tells."""

    def check(self) -> None:
        """Raise Cancelled when nobody waits for the answer any more; called before every call of a model."""

    def draft_len(self) -> tuple[int, str]:
        """Most draft tokens of the next round, and who says so (which matters when it is 0)."""

    def progress(self, verdict: Verdict) -> None:
        """The target has spoken, and the writer has taken it."""

    def round_done(self, done: RoundDone) -> None:
        """A round is counted."""

    def warn(self, problem: str) -> None:
        """Something that the client need not know."""


class Decoding:
    """One answer in the making. `mode` says at the end how it was made.

    `adaptive` shortens rounds by what the request has seen. `at_once`: a target-only answer is one call, because an
    input (a grammar, say) holds for one call only.
    """

    def __init__(
        self,
        pair: Pair,
        writer: Writer,
        rounds: Rounds,
        host: Host,
        *,
        stream: bool,
        at_once: bool,
        adaptive: Adaptive | None = None,
    ) -> None:
        self._pair = pair
        self._writer = writer
        self._rounds = rounds
        self._host = host
        self._pieces = (FIRST_PIECE, STREAM_PIECE) if stream else (PIECE, PIECE)
        self._at_once = at_once
        self._adaptive = adaptive
        self.mode = SPECULATIVE

    def run(self) -> None:
        """Write the whole answer. CallFailed when the target fails, Cancelled."""
        while not self._writer.finish:
            limit, reason = self._host.draft_len()
            if limit == 0:
                self._finish_alone(reason)
            else:
                self._round(min(limit, self._adaptive.limit()) if self._adaptive else limit)

    def _round(self, limit: int) -> None:
        began = time.monotonic()
        # The target always adds a token of its own, so the last token is never drafted.
        count = min(limit, self._writer.room - 1)
        self._host.check()
        try:
            draft = self._pair.draft(self._writer.tokens, count) if count else Draft([])
        except CallFailed as reason:
            self._host.check()
            self._host.warn(f"the draft model failed; the target continues alone: {reason}")
            self._finish_alone(reason.mode)
            return
        self._host.check()
        verdict = self._pair.verify(self._writer.tokens, draft)
        accepted = agreeing(draft.tokens, verdict.tokens)
        kept = self._writer.extend(verdict.tokens)
        done = self._rounds.add(len(draft.tokens), accepted, kept, time.monotonic() - began)
        if len(verdict.tokens) == accepted:
            # No token of its own: the target has met the end token.
            self._writer.end("end_id")
        if self._adaptive:
            self._adaptive.saw(done.drafted, done.accepted)
        self._host.round_done(done)
        self._host.progress(verdict)

    def _finish_alone(self, reason: str) -> None:
        self.mode = f"target-only:{reason}"
        count, most = self._pieces
        while not self._writer.finish:
            asked = self._writer.left if self._at_once else min(count, self._writer.room)
            self._host.check()
            verdict = self._pair.continue_alone(self._writer.tokens, asked)
            self._writer.extend(verdict.tokens)
            if len(verdict.tokens) < asked:
                self._writer.end("end_id")
            self._host.progress(verdict)
            count = min(2 * count, most)
