"""Token-id spaces as published, for a pair of which at least one tokenizer is not on this machine.

Nothing here is as good as comparing the files, so the best answer is a warning; spaces that cannot agree are an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtspec.checkpoint.known import KnownModel
from trtspec.config import RunConfig
from trtspec.pairing.findings import Finding
from trtspec.pairing.model import Model

FETCH = "fetch both tokenizers (`--download` with pinned revisions) and check again before you build"
OTHER = "choose a draft that was trained with the target's tokenizer"


def check_published(target: Model, draft: Model, config: RunConfig) -> Iterator[Finding]:
    """One finding about the pair, when a tokenizer is not here but its model is well known."""
    del config  # every check has the same three arguments
    if target.published is not None and draft.published is not None:
        yield _spaces(target.published, draft.published)
    elif target.published is not None and draft.vocabulary is not None:
        yield _against_file(target, draft, target.published)
    elif draft.published is not None and target.vocabulary is not None:
        yield _against_file(draft, target, draft.published)


def _spaces(target: KnownModel, draft: KnownModel) -> Finding:
    data = _data(target, draft)
    said = "published, not compared on this machine"
    if target.text != draft.text:
        message = f"the target's token ids are those of {target.tokenizer}, the draft's of {draft.tokenizer} ({said})"
        return _finding("error", message, OTHER, data)
    if draft.tokens > target.tokens:
        message = f"the draft has {draft.tokens - target.tokens:,} token ids that the target lacks ({said})"
        return _finding("error", message, OTHER, data)
    if target.tokenizer == draft.tokenizer:
        message = f"both have the {target.tokens:,} token ids of {target.tokenizer} ({said})"
        return _finding("warning", message, FETCH, data)
    message = (
        f"both have the text ids of {target.text}; special tokens differ between {target.tokenizer} (target, "
        f"{target.tokens:,} tokens) and {draft.tokenizer} (draft, {draft.tokens:,}) ({said})"
    )
    return _finding("warning", message, FETCH, data)


def _against_file(published: Model, here: Model, known: KnownModel) -> Finding:
    """The most that can be said of a published space and a file: how many tokens each has."""
    count = 0 if here.vocabulary is None else len(here.vocabulary.by_id)
    data: dict[str, Any] = {published.role: {"tokens": known.tokens, "space": known.tokenizer}}
    data[here.role] = {"tokens": count, "space": None}
    tokens = {published.role: known.tokens, here.role: count}
    if tokens["draft"] > tokens["target"]:
        message = f"the draft has {tokens['draft'] - tokens['target']:,} more tokens than the target"
        return _finding("error", f"{message} ({published.role} as published)", OTHER, data)
    message = (
        f"the {published.role} is published with the {known.tokens:,} token ids of {known.tokenizer}, the file of the "
        f"{here.role} has {count:,}; equal numbers prove nothing, and the ids are not compared on this machine"
    )
    return _finding("warning", message, FETCH, data)


def _finding(severity: Any, message: str, fix: str, data: dict[str, Any]) -> Finding:
    return Finding("vocab.published", severity, "pair", message, fix, data)


def _data(target: KnownModel, draft: KnownModel) -> dict[str, Any]:
    return {
        role: {"id": model.id, "tokens": model.tokens, "space": model.tokenizer, "text": model.text}
        for role, model in (("target", target), ("draft", draft))
    }
