"""preprocessing: prompt and words in, token ids out; what is too long for the engines is refused here, for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from limits import IN_PREPROCESSING, Limits
from vocabulary import Vocabulary
from wire import Array, Inputs, Parameters, Refused, internal_error, pack_words, refusal, refuse_numpy_2, response

HEAD = 16
"""Characters for each token that a prompt may have. Text has about four for a token."""
TEXT_ONLY = ("IMAGE_BYTES", "IMAGE_URL", "VIDEO_BYTES", "PROMPT_TABLE_EXTRA_ID")


class TritonPythonModel:
    """Tokenizes each request by itself; a batch is padded on the right with the pad id."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the tokenizer and the parameters."""
        refuse_numpy_2()
        given = Parameters(args)
        folder = Path(__file__).parent / given.text("tokenizer_dir", "tokenizer")
        self._vocabulary = Vocabulary(folder, add_special=given.flag("add_special_tokens", True))
        self._end_ids = given.ids("end_ids")
        self._pad_id = given.number("pad_id", 0)
        self._vocab_size = given.number("vocab_size")
        self._max_input_len = given.number("max_input_len")
        self._max_seq_len = given.number("max_seq_len")
        self._limits = Limits.of(given)

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            return response(self._tensors(Inputs.of(request)))
        except Refused as reason:
            return refusal(reason)
        except Exception as error:
            return internal_error("preprocessing", error)

    def _tensors(self, inputs: Inputs) -> dict[str, Array]:
        for name in TEXT_ONLY:
            if name in inputs:
                raise Refused(f"{name}: this pipeline takes text only")
        if "QUERY" not in inputs:
            raise Refused("QUERY is missing")
        self._limits.check(inputs, names=IN_PREPROCESSING)
        rows = [inputs.row(i) for i in range(len(inputs.array("QUERY")))]
        prompts = [self._prompt(row) for row in rows]
        decoder = [self._vocabulary.encode_prompt(q) for r in rows for q in r.words("DECODER_QUERY")]
        decoder = decoder or [[self._pad_id]] * len(rows)
        end_ids = [self._ends(row) for row in rows]
        return {
            "INPUT_ID": self._padded(prompts),
            "REQUEST_INPUT_LEN": _column([len(ids) for ids in prompts]),
            "DECODER_INPUT_ID": self._padded(decoder),
            "REQUEST_DECODER_INPUT_LEN": _column([len(ids) for ids in decoder]),
            "BAD_WORDS_IDS": pack_words([self._words(row, "BAD_WORDS_DICT") for row in rows]),
            # A model with several end ids stops at the others as at stop words of one token.
            "STOP_WORDS_IDS": pack_words(
                [
                    self._words(row, "STOP_WORDS_DICT") + [[end] for end in ends[1:]]
                    for row, ends in zip(rows, end_ids, strict=True)
                ]
            ),
            "EMBEDDING_BIAS": np.concatenate([self._bias(row) for row in rows]),
            "REQUEST_OUTPUT_LEN": inputs.array("REQUEST_OUTPUT_LEN"),
            "OUT_END_ID": _column([ends[0] for ends in end_ids]),
            "OUT_PAD_ID": _column([row.integer("PAD_ID", self._pad_id) for row in rows]),
            "OUT_PROMPT_TABLE_EXTRA_IDS": np.zeros((len(rows), 0), dtype=np.uint64),
        }

    def _prompt(self, row: Inputs) -> list[int]:
        query = "".join(row.words("QUERY"))
        self._refuse_endless(query)
        ids = self._vocabulary.encode_prompt(query)
        new = row.integer("REQUEST_OUTPUT_LEN", 0)
        if not ids:
            raise Refused("the prompt has no tokens")
        if len(ids) > self._max_input_len:
            raise Refused(f"the prompt has {len(ids)} tokens; this server takes at most {self._max_input_len}")
        if new < 1:
            raise Refused(f"max_tokens is {new}; it must be at least 1")
        if len(ids) + new > self._max_seq_len:
            raise Refused(
                f"the prompt has {len(ids)} tokens and max_tokens is {new}; "
                f"this server takes at most {self._max_seq_len} together"
            )
        return ids

    def _refuse_endless(self, query: str) -> None:
        """A megabyte takes a second, and all others wait meanwhile: where its beginning is twice too long, no more."""
        head, most = query[: HEAD * self._max_input_len], 2 * self._max_input_len
        if len(head) < len(query) and len(self._vocabulary.encode_prompt(head)) > most:
            raise Refused(f"the prompt has more than {most} tokens; this server takes at most {self._max_input_len}")

    def _ends(self, row: Inputs) -> tuple[int, ...]:
        given = row.integer("END_ID")
        return (given,) if given is not None else self._end_ids or (-1,)

    def _words(self, row: Inputs, name: str) -> list[list[int]]:
        ids = [self._vocabulary.encode_word(word) for word in row.words(name)]
        return [word for word in ids if word]

    def _bias(self, row: Inputs) -> Array:
        words, weights = row.words("EMBEDDING_BIAS_WORDS"), row.array("EMBEDDING_BIAS_WEIGHTS")
        count = 0 if weights is None else weights.size
        if len(words) != count:
            raise Refused(f"{len(words)} embedding_bias_words and {count} embedding_bias_weights")
        bias = np.zeros((1, self._vocab_size if words else 0), dtype=np.float32)
        for word, weight in zip(words, () if weights is None else weights.reshape(-1), strict=True):
            ids = self._vocabulary.encode_word(word)
            if not all(token < self._vocab_size for token in ids):
                raise Refused(f"an embedding_bias_word has a token beyond the model's vocabulary of {self._vocab_size}")
            with np.errstate(over="ignore"):  # refused below
                bias[0, ids] += weight
        if not np.isfinite(bias).all():
            raise Refused("embedding_bias_weights of one word add up to more than a number can hold")
        return bias

    def _padded(self, rows: list[list[int]]) -> Array:
        out = np.full((len(rows), max(map(len, rows))), self._pad_id, dtype=np.int32)
        for line, ids in zip(out, rows, strict=True):
            line[: len(ids)] = ids
        return out


def _column(values: list[int]) -> Array:
    return np.array(values, dtype=np.int32).reshape(-1, 1)
