"""postprocessing: token ids in, text out. Each response is decoded by itself, as in TensorRT-LLM's pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from vocabulary import Vocabulary
from wire import Inputs, Parameters, Refused, internal_error, refusal, refuse_numpy_2, response, strings


class TritonPythonModel:
    """Decodes the first SEQUENCE_LENGTH tokens of every beam of every batch member."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the tokenizer."""
        refuse_numpy_2()
        given = Parameters(args)
        folder = Path(__file__).parent / given.text("tokenizer_dir", "tokenizer")
        self._counts = "NUM_OUTPUT_TOKENS" in given.outputs
        self._vocabulary = Vocabulary(folder, skip_special=given.flag("skip_special_tokens", True))

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request: OUTPUT has a text per beam, without a batch dimension."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            return self._texts_of(Inputs.of(request))
        except Refused as reason:
            return refusal(reason)
        except Exception as error:
            return internal_error("postprocessing", error)

    def _texts_of(self, inputs: Inputs) -> Any:
        lengths = inputs.array("SEQUENCE_LENGTH")
        if lengths is None:
            raise Refused("SEQUENCE_LENGTH is empty")
        counts = {"NUM_OUTPUT_TOKENS": lengths.reshape(len(lengths), -1).sum(axis=1, keepdims=True, dtype=np.int32)}
        # Declared only for TensorRT-LLM versions whose backend does not count.
        return response({"OUTPUT": strings(*self._texts(inputs)), **(counts if self._counts else {})})

    def _texts(self, inputs: Inputs) -> list[str]:
        lengths = inputs.array("SEQUENCE_LENGTH").reshape(-1)
        tokens = inputs.array("TOKENS_BATCH")
        if tokens is None:
            return [""] * len(lengths)
        if tokens.size % len(lengths):
            raise Refused(f"TOKENS_BATCH holds {tokens.size} ids for {len(lengths)} lengths")
        if tokens.min() < 0:
            raise Refused(f"TOKENS_BATCH holds {tokens.min()}, which is no token")
        lines = tokens.reshape(len(lengths), -1)
        return [self._vocabulary.decode(line[:n].tolist()) for line, n in zip(lines, lengths, strict=True)]
