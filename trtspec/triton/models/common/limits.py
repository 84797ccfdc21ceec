"""How much one request may ask for. Checked before anything is computed; what is too much is refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from wire import Inputs, Parameters, Refused

REQUEST_ID = 256
"""Characters."""
LABEL_BYTES = 256
"""Of a task's name."""
SEQUENCES = 64
"""Answers to one prompt, and beams."""
MEBIBYTE = 1 << 20
# Our inputs -> preprocessing's, whose own clients (the ensemble) have the same limits.
IN_PREPROCESSING = {
    "text_input": "QUERY",
    "decoder_text_input": "DECODER_QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "stop_words": "STOP_WORDS_DICT",
    "bad_words": "BAD_WORDS_DICT",
    "end_id": "END_ID",
    "pad_id": "PAD_ID",
    "embedding_bias_words": "EMBEDDING_BIAS_WORDS",
    "embedding_bias_weights": "EMBEDDING_BIAS_WEIGHTS",
}

# What no model takes. Were it left to the models, the draft would fail first, and with it look ill to everybody.
NUMBERS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda x: 0.0 <= x < np.inf, "0 (greedy) or positive"),
    "top_p": (lambda x: x == x, "a number"),
    "top_k": (lambda x: x >= 0, "0 (off) or positive"),
    "length_penalty": (np.isfinite, "finite"),
    "repetition_penalty": (lambda x: 0.0 < x < np.inf, "positive"),
    "presence_penalty": (np.isfinite, "finite"),
    "frequency_penalty": (np.isfinite, "finite"),
    "embedding_bias_weights": (np.isfinite, "finite"),
}


@dataclass(frozen=True)
class Limits:
    """The most of each. A limit of 0 is none, as is a missing `max_tokens`."""

    prompt_bytes: int = MEBIBYTE
    max_tokens: int = 0
    stop_words: int = 64
    """Of each kind: stop words, bad words, words of the embedding bias."""
    stop_word_bytes: int = 1024

    @classmethod
    def of(cls, given: Parameters) -> Limits:
        """From parameters of a config.pbtxt."""
        return cls(
            prompt_bytes=given.number("limit_prompt_bytes", cls.prompt_bytes),
            max_tokens=given.number("limit_max_tokens", cls.max_tokens),
            stop_words=given.number("limit_stop_words", cls.stop_words),
            stop_word_bytes=given.number("limit_stop_word_bytes", cls.stop_word_bytes),
        )

    def check(self, inputs: Inputs, request_id: str = "", names: Mapping[str, str] | None = None) -> None:
        """Raise Refused; `names` says how a model calls an input otherwise."""
        theirs = names or {}
        if len(request_id) > REQUEST_ID:
            raise Refused(f"the request id has {len(request_id)} characters; this server takes at most {REQUEST_ID}")
        for name in ("text_input", "decoder_text_input", "guided_decoding_guide"):
            self._text(inputs, theirs.get(name, name), self.prompt_bytes)
        self._text(inputs, "task", LABEL_BYTES)
        for name in ("stop_words", "bad_words", "embedding_bias_words"):
            self._words(inputs, theirs.get(name, name))
        _at_most(inputs, "num_return_sequences", SEQUENCES)
        _at_most(inputs, "beam_width", SEQUENCES)
        if self.max_tokens:
            _at_most(inputs, theirs.get("max_tokens", "max_tokens"), self.max_tokens, "max_tokens")
        for name, (holds, expected) in NUMBERS.items():
            wrong = next((item for item in _items(inputs, theirs.get(name, name)) if not holds(item)), None)
            if wrong is not None:
                raise Refused(f"{name} is {wrong:g}; it must be {expected}")

    def _text(self, inputs: Inputs, name: str, most: int) -> None:
        size = max((_bytes(item) for item in _items(inputs, name)), default=0)
        if most and size > most:
            raise Refused(f"{name} has {size} bytes; this server takes at most {most}")

    def _words(self, inputs: Inputs, name: str) -> None:
        items = _items(inputs, name)
        if self.stop_words and len(items) > self.stop_words:
            raise Refused(f"{name} holds {len(items)} words; this server takes at most {self.stop_words}")
        size = max((_bytes(item) for item in items), default=0)
        if self.stop_word_bytes and size > self.stop_word_bytes:
            raise Refused(f"{name} holds a word of {size} bytes; this server takes at most {self.stop_word_bytes}")


def _at_most(inputs: Inputs, name: str, most: int, ours: str = "") -> None:
    asked = max((int(item) for item in _items(inputs, name)), default=0)
    if asked > most:
        raise Refused(f"{ours or name} is {asked}; this server takes at most {most}")


def _items(inputs: Inputs, name: str) -> list[Any]:
    array = inputs.array(name)
    return [] if array is None else list(array.reshape(-1))


def _bytes(item: Any) -> int:
    return len(item.encode("utf-8", "replace")) if isinstance(item, str) else len(bytes(item))
