"""All checks of a pair, from its files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtspec.checkpoint.jsonfile import ABSENT
from trtspec.config import RunConfig
from trtspec.errors import ModelFileError
from trtspec.pairing.economics import Cost, check_economics, cost_ratio, table
from trtspec.pairing.findings import Finding, Verdict
from trtspec.pairing.lengths import check_lengths, positions
from trtspec.pairing.model import Model
from trtspec.pairing.size import check_size, parameters
from trtspec.pairing.tokenizer import Vocabulary, compare, examine, read_vocabularies
from trtspec.pairing.widths import check_widths


def check_pair(target_dir: Path, draft_dir: Path, config: RunConfig) -> Verdict:
    """Findings and facts of the pair. Never raises for a broken model file: that is an error finding.

    A missing tokenizer is an error; whatever else a missing file hides is *not measured*.
    """
    target, draft = Model.read("target", target_dir, config), Model.read("draft", draft_dir, config)
    found = list(_tokenizers(target, draft))
    cost = cost_ratio(target, draft, config)
    found += check_widths(target, draft, config)
    found += check_size(target, draft, config, None if cost is None else cost.ratio)
    found += check_lengths(target, draft, config)
    found += check_economics(cost, config)
    return Verdict((*target.findings, *draft.findings, *found), _facts(target, draft, cost, config))


def _tokenizers(target: Model, draft: Model) -> Iterator[Finding]:
    read = read_vocabularies(target.folder, draft.folder)
    for model, vocabulary in zip((target, draft), read, strict=True):
        if isinstance(vocabulary, Vocabulary):
            model.vocabulary = vocabulary
            yield from examine(model.role, vocabulary)
        else:
            yield _unreadable(model, vocabulary)
    if target.vocabulary is not None and draft.vocabulary is not None:
        yield from compare(target.vocabulary, draft.vocabulary)
    else:
        yield Finding("vocab.not-measured", "info", "pair", "token ids are not compared: a tokenizer could not be read")


def _unreadable(model: Model, error: ModelFileError) -> Finding:
    if not model.here:
        # An error, not *not measured*: a verdict that never compared token ids must not read as a pass.
        message = f"{model.folder}: not on this machine; nothing can be said about its token ids"
        fix = f"pin pair.{model.role}.revision, then fetch it with --download"
        return Finding("tokenizer.missing", "error", model.role, message, fix)
    code = "tokenizer.missing" if error.what == ABSENT else "tokenizer.broken"
    facts = {"where": error.where, "found": error.found, "expected": error.expected}
    return Finding(code, "error", model.role, str(ModelFileError(error.what, **facts)), error.fix, facts)


def _facts(target: Model, draft: Model, cost: Cost | None, config: RunConfig) -> dict[str, Any]:
    facts: dict[str, Any] = {model.role: _model_facts(model) for model in (target, draft)}
    facts["economics"] = None if cost is None else table(cost, config)
    return facts


def _model_facts(model: Model) -> dict[str, Any]:
    facts, vocabulary = model.facts, model.vocabulary
    return {
        "folder": str(model.folder),
        "parameters": parameters(model),
        "architecture": facts and facts.architecture,
        "dtype": facts and facts.dtype,
        "vocab_size": facts and facts.vocab_size,
        "positions": facts and positions(facts),
        "tokens": vocabulary and len(vocabulary.by_id),
        "last_id": vocabulary and vocabulary.last_id,
    }
