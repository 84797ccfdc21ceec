"""The loop: rounds of draft and verify, then, if need be, the target alone."""

from __future__ import annotations

from collections.abc import Callable

from calls import CallFailed
from pair import Draft, Pair, Verdict
from rounds import Rounds, agreeing
from writing import Writer

SPECULATIVE = "speculative"


class Cancelled(Exception):
    """The client has gone."""


class Decoding:
    """One answer in the making. `mode` says at the end how it was made.

    `draft_len` gives the most draft tokens of the next round, and a reason when that is 0; `progress` is called
    after every step and may raise Cancelled.
    """

    def __init__(
        self,
        pair: Pair,
        writer: Writer,
        rounds: Rounds,
        max_tokens: int,
        draft_len: Callable[[], tuple[int, str]],
        progress: Callable[[Verdict], None],
        warn: Callable[[str], None],
    ) -> None:
        self._pair = pair
        self._writer = writer
        self._rounds = rounds
        self._max_tokens = max_tokens
        self._draft_len = draft_len
        self._progress = progress
        self._warn = warn
        self.mode = SPECULATIVE

    def run(self) -> None:
        """Write the whole answer. CallFailed when the target fails."""
        while not self._writer.finish:
            limit, reason = self._draft_len()
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
        try:
            draft = self._pair.draft(self._ids, count) if count else Draft([])
        except CallFailed as reason:
            self._warn(f"the draft model failed; the target continues alone: {reason}")
            self.mode = "target-only:draft-failed"
            self._finish_alone()
            return
        verdict = self._pair.verify(self._ids, draft)
        accepted = agreeing(draft.tokens, verdict.tokens)
        kept = self._writer.extend(verdict.tokens)
        self._rounds.add(len(draft.tokens), accepted, kept)
        if len(verdict.tokens) == accepted:
            # No token of its own: the target has met the end token.
            self._writer.end("end_id")
        self._progress(verdict)

    def _finish_alone(self) -> None:
        steps = self._pair.continue_alone(self._ids, self._remaining)
        try:
            for verdict in steps:
                self._writer.extend(verdict.tokens)
                self._progress(verdict)
                if self._writer.finish:
                    break
        finally:
            steps.close()
        self._writer.end("end_id")
