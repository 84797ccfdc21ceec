"""Prompts for a bare model folder, in its own tokens: from files of prompts, or the few that come with trtspec."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from trtspec.config.validation import Dataset
from trtspec.errors import ConfigError, ModelFileError
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.prompts import Prompt, load_prompts
from trtspec.measurement.reading import TokenPrompt
from trtspec.measurement.samples import SAMPLES

MAX_TOKENS = 64
BUILT_IN = "general"
"""Domain of the prompts that come with trtspec."""


def token_prompts(
    folder: Path, files: Sequence[Path], *, max_tokens: int | None = None, seed: int = 0, room: int | None = None
) -> list[TokenPrompt]:
    """Prompts in the tokens of the model in `folder`, chats through its template; without files the built-in ones.

    `max_tokens` is the longest answer where a line does not say. `room`: longest prompt with its answer in tokens;
    an answer is cut to fit, a prompt that leaves no room for one is refused. ConfigError names file and line.
    """
    tokenizer, chat = _tokenizer(folder), ChatTemplate.read(folder)
    prompts = [p for path in files for p in _of_file(path, chat, seed, max_tokens or MAX_TOKENS)]
    if not files:
        prompts = _built_in(chat, max_tokens or MAX_TOKENS)
    return [_tokens(p, tokenizer, seed + i, room) for i, p in enumerate(prompts)]


def _of_file(path: Path, chat: ChatTemplate | None, seed: int, max_tokens: int) -> list[Prompt]:
    return load_prompts(Dataset(path=path, domain=domain_of(path)), chat, seed, max_tokens)


def domain_of(path: Path) -> str:
    """The domain that the file's first line names, or the file's own name."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = json.loads(next((line for line in file if line.strip()), "{}"))
        named = first.get("domain") if isinstance(first, dict) else None
    except (OSError, ValueError, RecursionError):
        named = None  # the loader says what is wrong with the file, and in which line
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._") or "prompts"
    return named if isinstance(named, str) and named else stem


def _built_in(chat: ChatTemplate | None, max_tokens: int) -> list[Prompt]:
    texts = [chat.render([{"role": "user", "content": text}]) if chat else text for text in SAMPLES]
    return [Prompt(f"{BUILT_IN}-{i}", BUILT_IN, text, max_tokens) for i, text in enumerate(texts)]


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError("no tokenizer.json", where=folder, fix="put the model's tokenizer.json into the folder")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelFileError(f"cannot read the tokenizer: {error}", where=path) from None


def _tokens(prompt: Prompt, tokenizer: Tokenizer, seed: int, room: int | None) -> TokenPrompt:
    ids = tuple(tokenizer.encode(prompt.text).ids)
    most = prompt.max_tokens if room is None else min(prompt.max_tokens, room - len(ids))
    if not ids or most < 1:
        raise ConfigError(
            f"the prompt {prompt.id!r} of {prompt.domain!r} leaves no room for an answer",
            found=f"{len(ids)} tokens",
            expected=f"1 to {(room or len(ids) + 2) - 1}",
        )
    return TokenPrompt(prompt.id, prompt.domain, ids, most, seed)
