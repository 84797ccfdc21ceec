"""Small model folders for the checks of tokenizers: documents written as JSON, read as the check reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.pairing.pairs import tokenizer
from trtspec.pairing.conversations import rendering
from trtspec.pairing.findings import Finding
from trtspec.pairing.parity import check_words
from trtspec.pairing.tokenizer import Vocabulary, read_vocabularies
from trtspec.pairing.words import Words

CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ADDED = {"<s>": 48, "</s>": 49, "<|user|>": 50, "<|assistant|>": 51, "<|system|>": 52, "<|end|>": 53}
"""On top of the 48 words of `pairs.tokenizer`."""
FILES = {
    "config": "tokenizer_config.json",
    "special_map": "special_tokens_map.json",
    "generation": "generation_config.json",
    "model": "config.json",
}


def write(folder: Path, *, words: str | bytes | None = None, **documents: Mapping[str, Any] | str | bytes) -> Path:
    """A folder with a tokenizer.json and whatever else is given: FILES by name as JSON, `jinja` as text."""
    folder.mkdir(parents=True, exist_ok=True)
    content = tokenizer(added=ADDED) if words is None else words
    (folder / "tokenizer.json").write_bytes(content.encode() if isinstance(content, str) else content)
    for name, document in documents.items():
        text = document if isinstance(document, (str, bytes)) else json.dumps(document)
        data = text.encode() if isinstance(text, str) else text
        (folder / FILES.get(name, "chat_template.jinja")).write_bytes(data)
    return folder


def read(target: Path, draft: Path) -> tuple[Words, Words]:
    """Both folders' documents, rendered, as the whole check reads them."""
    both = Words.read("target", target), Words.read("draft", draft)
    with rendering(both):
        vocabularies = read_vocabularies(target, draft)
    for words, vocabulary in zip(both, vocabularies, strict=True):
        words.vocabulary = vocabulary if isinstance(vocabulary, Vocabulary) else None
    return both


def findings(
    target: Path, draft: Path, rows: Mapping[str, int | None] | None = None, *, own: bool = True
) -> list[Finding]:
    """All findings about the two folders' tokenizers."""
    both = read(target, draft)
    return [*both[0].findings, *both[1].findings, *check_words(*both, rows or {}, own=own)]


def by_code(found: list[Finding], code: str, subject: str | None = None) -> Finding:
    """The one finding of this code (and subject)."""
    (finding,) = [f for f in found if f.code == code and subject in (None, f.subject)]
    return finding


def codes(found: list[Finding]) -> dict[str, str]:
    """Code → severity."""
    return {f.code: f.severity for f in found}
