"""Prompts as the served pipeline hands them to the models: token ids, and the seed of each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from trtspec.errors import ModelFileError
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.reading import TokenPrompt

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Limits:
    """What the pipeline takes, in tokens: the longest prompt, and the longest prompt with its answer."""

    max_input_len: int
    max_seq_len: int


class PromptEncoder:
    """tokenizer.json of a model folder. A text that brings its own BOS does not get a second one, as when served."""

    def __init__(self, folder: Path) -> None:
        path = folder / TOKENIZER
        if not path.is_file():
            raise ModelFileError("no such file", where=path, expected="the target's fast tokenizer")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise ModelFileError(f"cannot read the tokenizer: {error}", where=path) from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._around: list[int] = self._tokenizer.encode("").ids

    def ids(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        ids: list[int] = self._tokenizer.encode(text).ids
        own = len(self._around)
        return ids[own:] if own and ids[: 2 * own] == self._around * 2 else ids


def token_prompts(
    prompts: Sequence[Prompt], encoder: PromptEncoder, limits: Limits, vocab_sizes: Sequence[int], seed: int
) -> tuple[list[TokenPrompt], list[tuple[Prompt, str]]]:
    """Prompts that both models can take, and the others with the reason.

    As in a validation, prompt i of a domain draws with `seed` + i, also where others are left out.
    """
    taken: list[TokenPrompt] = []
    left: list[tuple[Prompt, str]] = []
    places: dict[str, int] = {}
    for prompt in prompts:
        place = places[prompt.domain] = places.get(prompt.domain, -1) + 1
        ids = encoder.ids(prompt.text)
        fault = _fault(ids, prompt.max_tokens, limits, vocab_sizes)
        if fault is not None:
            left.append((prompt, fault))
        else:
            taken.append(TokenPrompt(prompt.id, prompt.domain, tuple(ids), prompt.max_tokens, seed + place))
    return taken, left


def _fault(ids: Sequence[int], max_tokens: int, limits: Limits, vocab_sizes: Sequence[int]) -> str | None:
    if not ids:
        return "the prompt has no tokens"
    if len(ids) > limits.max_input_len:
        return f"{len(ids)} tokens; at most {limits.max_input_len} are served (engine.max_input_len)"
    if len(ids) + max_tokens > limits.max_seq_len:
        return f"{len(ids)} tokens and an answer of {max_tokens}; at most {limits.max_seq_len} fit together"
    if max(ids) >= min(vocab_sizes):
        return f"it holds the token {max(ids)}, which a model does not have"
    return None
