"""Held-out prompts per domain: chat questions for the API reference, file excerpts for the rest."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .corpus import DOMAINS, Document
from .data import raw_chunks

PER_DOMAIN = 120
PER_SOURCE = {"api-reference": 3, "type-stubs": 3, "python-source": 10}
MAX_TOKENS = {"api-reference": 96, "type-stubs": 64, "python-source": 64}
ANSWER_TOKENS = (30, 92)  # a reference answer outside says little or would be cut
RAW_TOKENS = (60, 150)


def write_prompts(tokenizer: Tokenizer, held_out: list[Document], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for domain in DOMAINS:
        documents = [d for d in held_out if d.domain == domain]
        random.Random(domain).shuffle(documents)
        candidates = [c for d in documents for c in _candidates(tokenizer, d)]
        random.Random(domain).shuffle(candidates)
        lines = [
            json.dumps({"id": f"{domain}-{i:03}", "domain": domain, **body}) + "\n"
            for i, body in enumerate(_spread(candidates, domain))
        ]
        (folder / f"{domain}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{domain}: {len(lines)} prompts", flush=True)


def _candidates(tokenizer: Tokenizer, document: Document) -> list[tuple[str, dict[str, Any]]]:
    if document.prompt:
        length = len(tokenizer.encode(document.text, add_special_tokens=False).ids)
        fits = ANSWER_TOKENS[0] <= length <= ANSWER_TOKENS[1]
        messages = [{"role": "user", "content": document.prompt}]
        return [(document.source, {"messages": messages})] if fits else []
    found = []
    for chunk in raw_chunks(document.text, random.Random(document.source)):
        prompt = chunk[: chunk.rfind("\n", 0, 360) + 1]
        length = len(tokenizer.encode(prompt).ids)
        # What follows the excerpt must exist, or the reference would be the end of the file.
        if RAW_TOKENS[0] <= length <= RAW_TOKENS[1] and len(chunk) > len(prompt) + 40:
            found.append((document.source, {"prompt": prompt}))
    return found


def _spread(candidates: list[tuple[str, dict[str, Any]]], domain: str) -> list[dict[str, Any]]:
    """The first candidates, with at most a few of any one source and no prompt twice."""
    taken: Counter[str] = Counter()
    seen: set[str] = set()
    chosen: list[dict[str, Any]] = []
    for source, body in candidates:
        text = json.dumps(body.get("messages") or body.get("prompt"))
        if taken[source] >= PER_SOURCE[domain] or text in seen or len(chosen) == PER_DOMAIN:
            continue
        taken[source] += 1
        seen.add(text)
        chosen.append({**body, "max_tokens": MAX_TOKENS[domain]})
    return chosen
