"""tokenizer.json, read as it is written. AutoTokenizer rebuilds some classes and then encodes differently."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

REPLACEMENT = "\ufffd"


class Vocabulary:
    """One tokenizer; `skip_special` leaves control tokens out of decoded text."""

    def __init__(self, folder: Path, *, add_special: bool = True, skip_special: bool = True) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._add_special = add_special
        self._skip_special = skip_special
        # What the tokenizer puts around any text: the BOS token of most models.
        self._around = self._tokenizer.encode("", add_special_tokens=True).ids

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a prompt. A text that brings its own BOS (a rendered chat template) does not get a second one."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=self._add_special).ids
        own = len(self._around)
        if self._add_special and own and ids[: 2 * own] == self._around * 2:
            return ids[own:]
        return ids

    def encode_word(self, text: str) -> list[int]:
        """Ids of a stop word or bad word, with nothing added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=self._skip_special))


class Detokenizer:
    """Text that grows token by token and never changes once it is out.

    A character split over tokens is held back until it is whole. Only a short tail is decoded again for each
    token, from a boundary far enough back that joining rules (a leading space, say) come out as in the whole.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._ids: list[int] = []
        self._start = 0
        self._done = 0
        self.text = ""
        self.ends: list[int] = []
        """Characters of `text` that were there after each token."""

    def push(self, token: int) -> None:
        """Add one token."""
        self._ids.append(token)
        known = self._vocabulary.decode(self._ids[self._start : self._done])
        now = self._vocabulary.decode(self._ids[self._start :])
        if len(now) > len(known) and not now.endswith(REPLACEMENT):
            self.text += now[len(known) :]
            self._start, self._done = self._done, len(self._ids)
        self.ends.append(len(self.text))
