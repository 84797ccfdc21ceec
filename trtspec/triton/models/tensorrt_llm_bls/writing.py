"""The answer as it grows: its tokens, their text, where it must end, and what of it may be shown already."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from vocabulary import Detokenizer, Vocabulary


@dataclass(frozen=True)
class Limits:
    """What ends an answer. Stop words count as text and as token sequences; both are left out unless included."""

    max_tokens: int
    end_ids: frozenset[int]
    stop_texts: tuple[str, ...] = ()
    stop_ids: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    """End ids before this many tokens are ordinary tokens."""
    include_stop_words: bool = False
    """The answer ends behind the stop word instead of before it."""


class Writer:
    """Collects accepted tokens. `finish` is empty until the answer has ended, then says why."""

    def __init__(self, vocabulary: Vocabulary, limits: Limits) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._written = Detokenizer(vocabulary)
        self._longest = max(map(len, limits.stop_texts), default=0)
        self._cut: int | None = None
        self._shown = 0
        self._shown_tokens = 0
        self.tokens: list[int] = []
        self.finish = ""

    @property
    def left(self) -> int:
        """Tokens that the answer may still have."""
        return self._limits.max_tokens - len(self.tokens)

    @property
    def room(self) -> int:
        """Tokens that one call of a model may bring: none beyond min_tokens while below, where other rules hold."""
        missing = self._limits.min_tokens - len(self.tokens)
        return min(missing, self.left) if missing > 0 else self.left

    def extend(self, tokens: Sequence[int]) -> int:
        """Add tokens up to the end of the answer; returns how many of these stay in it."""
        before = len(self.tokens)
        for token in tokens:
            if self.finish:
                break
            self._add(token)
        return max(0, len(self.tokens) - before)

    def end(self, reason: str) -> None:
        """The model has nothing more to say."""
        self.finish = self.finish or reason

    def piece(self) -> tuple[str, int]:
        """Text that has become certain since the last call, and how many tokens it completes."""
        if self.finish:
            text = self.text()
            # Joining rules of a tokenizer may change its last characters; never what was shown.
            until, tokens = len(text), len(self.tokens)
        else:
            text = self._written.text
            until = len(text) - self._held_back(text)
            tokens = self._tokens_before(until)
        new = text[self._shown : until], max(0, tokens - self._shown_tokens)
        self._shown, self._shown_tokens = max(self._shown, until), max(self._shown_tokens, tokens)
        return new

    def text(self) -> str:
        """The whole answer so far."""
        if self._cut is not None:
            return self._written.text[: self._cut]
        return self._vocabulary.decode(self.tokens)

    def _add(self, token: int) -> None:
        if token in self._limits.end_ids and len(self.tokens) >= self._limits.min_tokens:
            self.finish = "end_id"
            return
        known = len(self._written.text)
        self.tokens.append(token)
        self._written.push(token)
        cut = self._text_stop(known)
        cut = self._token_stop() if cut is None else cut
        if cut is not None:
            self._cut = cut
            self.finish = "stop_words"
            # A token that only begins before the cut is still part of the answer.
            del self.tokens[self._tokens_before(cut) :]
        elif len(self.tokens) >= self._limits.max_tokens:
            self.finish = "length"

    def _text_stop(self, known: int) -> int | None:
        """Where the answer ends by the first stop word that the characters after `known` have completed."""
        start = max(0, known - self._longest + 1)
        found = [(self._written.text.find(word, start), len(word)) for word in self._limits.stop_texts]
        at, length = min((f for f in found if f[0] >= 0), default=(-1, 0))
        if at < 0:
            return None
        return at + length if self._limits.include_stop_words else at

    def _token_stop(self) -> int | None:
        """Where the answer ends by a stop sequence that the last token has completed."""
        lengths = [len(w) for w in self._limits.stop_ids if tuple(self.tokens[-len(w) :]) == w]
        if not lengths:
            return None
        kept = len(self.tokens) - (0 if self._limits.include_stop_words else max(lengths))
        return self._written.ends[kept - 1] if kept else 0

    def _tokens_before(self, cut: int) -> int:
        """Tokens whose text begins before `cut`."""
        return 0 if cut == 0 else min(bisect_left(self._written.ends, cut) + 1, len(self.tokens))

    def _held_back(self, text: str) -> int:
        """Characters at the end that may be the beginning of a stop word."""
        return max((_begun(text, word) for word in self._limits.stop_texts), default=0)


def _begun(text: str, word: str) -> int:
    """The longest proper beginning of `word` that ends `text`: looked for at its first character only.

    To try every length took tens of milliseconds for a piece with many long words, in which no other request ran.
    """
    tail = text[-(len(word) - 1) :] if len(word) > 1 else ""
    at = tail.find(word[0]) if tail else -1
    while at >= 0 and not word.startswith(tail[at:]):
        at = tail.find(word[0], at + 1)
    return len(tail) - at if at >= 0 else 0
