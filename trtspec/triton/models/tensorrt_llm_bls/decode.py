"""The loop: rounds of draft and verify, then, if need be, the target alone."""

from __future__ import annotations

from typing import Protocol

from calls import CallFailed
from pair import Draft, Pair, Verdict
from rounds import Rounds, agreeing
from writing import Writer

SPECULATIVE = "speculative"
PIECE = 64
"""Tokens of one target-only call: between calls we see stop words and clients that have gone."""
FIRST_PIECE, STREAM_PIECE = 1, 8
"""The same for a stream: the first token early, then in growing pieces."""


class Cancelled(Exception):
    """The client has gone."""


class Host(Protocol):
    """What the loop needs to know, and whom it tells."""

    def check(self) -> None:
        """Raise Cancelled when nobody waits for the answer any more; called before every call of a model."""

    def draft_len(self) -> tuple[int, str]:
        """Most draft tokens of the next round, and who says so (which matters when it is 0)."""

    def progress(self, verdict: Verdict) -> None:
        """The target has spoken, and the writer has taken it."""

    def warn(self, problem: str) -> None:
        """Something that the client need not know."""


class Decoding:
    """One answer in the making. `mode` says at the end how it was made.

    `at_once`: a target-only answer is one call, because an input (a grammar, say) holds for one call only.
    """

    def __init__(
        self, pair: Pair, writer: Writer, rounds: Rounds, host: Host, *, max_tokens: int, stream: bool, at_once: bool
    ) -> None:
        self._pair = pair
        self._writer = writer
        self._rounds = rounds
        self._host = host
        self._max_tokens = max_tokens
        self._pieces = (FIRST_PIECE, STREAM_PIECE) if stream else (PIECE, PIECE)
        self._at_once = at_once
        self.mode = SPECULATIVE

    def run(self) -> None:
        """Write the whole answer. CallFailed when the target fails, Cancelled."""
        while not self._writer.finish:
            limit, reason = self._host.draft_len()
            if limit == 0:
                self.mode = f"target-only:{reason}"
                self._finish_alone()
            else:
                self._round(limit)

    @property
    def _ids(self) -> list[int]:
        return self._pair.prompt.ids + self._writer.tokens

    @property
    def _remaining(self) -> int:
        return self._max_tokens - len(self._writer.tokens)

    def _round(self, limit: int) -> None:
        # The target always adds a token of its own, so the last token is never drafted.
        count = min(limit, self._remaining - 1)
        self._host.check()
        try:
            draft = self._pair.draft(self._ids, count) if count else Draft([])
        except CallFailed as reason:
            self._host.check()
            self._host.warn(f"the draft model failed; the target continues alone: {reason}")
            self.mode = "target-only:draft-failed"
            self._finish_alone()
            return
        self._host.check()
        verdict = self._pair.verify(self._ids, draft)
        accepted = agreeing(draft.tokens, verdict.tokens)
        kept = self._writer.extend(verdict.tokens)
        self._rounds.add(len(draft.tokens), accepted, kept)
        if len(verdict.tokens) == accepted:
            # No token of its own: the target has met the end token.
            self._writer.end("end_id")
        self._host.progress(verdict)

    def _finish_alone(self) -> None:
        count, most = self._pieces
        while not self._writer.finish:
            asked = self._remaining if self._at_once else min(count, self._remaining)
            self._host.check()
            verdict = self._pair.continue_alone(self._ids, asked)
            self._writer.extend(verdict.tokens)
            if len(verdict.tokens) < asked:
                self._writer.end("end_id")
            self._host.progress(verdict)
            count = min(2 * count, most)
