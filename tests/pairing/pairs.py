"""Small pairs of model folders: tokenizers written as JSON, weights from the checkpoint tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.checkpoint.models import write_model
from trtspec.config import RunConfig
from trtspec.pairing.check import check_pair
from trtspec.pairing.findings import Finding, Verdict

WORDS = {f"w{i}": i for i in range(48)}
SPECIALS = {"<s>": 48, "</s>": 49}
TARGET: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 6}


def tokenizer(vocab: Mapping[str, int] = WORDS, added: Mapping[str, int] = SPECIALS, special: bool = True) -> str:
    """A word-level tokenizer.json."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None,
        "post_processor": None, "decoder": None,
        "added_tokens": [{"id": i, "content": t, "special": special, **flags} for t, i in added.items()],
        "model": {"type": "WordLevel", "vocab": dict(vocab), "unk_token": "w0"},
    })  # fmt: skip


def write_pair(folder: Path, *, target: dict[str, Any] | None = None, draft: dict[str, Any] | None = None) -> None:
    """folder/target and folder/draft: same tokenizer, a target about 22 times the draft; keys replace config.json's."""
    for role, changes in (("target", TARGET | (target or {})), ("draft", {"num_hidden_layers": 1} | (draft or {}))):
        write_model(folder / role, **changes)
        (folder / role / "tokenizer.json").write_text(tokenizer())


def run_config(folder: Path, **sections: Any) -> RunConfig:
    """A configuration of the pair in `folder`; sections replace whole blocks."""
    document: dict[str, Any] = {
        "name": "t",
        "pair": {"target": {"path": folder / "target"}, "draft": {"path": folder / "draft"}},
        "engine": {"max_input_len": 32, "max_seq_len": 64},
    }
    return RunConfig.model_validate(document | sections)


def check(folder: Path, **sections: Any) -> Verdict:
    """Check the pair in `folder`."""
    return check_pair(folder / "target", folder / "draft", run_config(folder, **sections))


def codes(verdict: Verdict) -> dict[str, str]:
    """Code → severity."""
    return {finding.code: finding.severity for finding in verdict.findings}


def only(verdict: Verdict, code: str) -> Finding:
    """The one finding with this code."""
    (finding,) = [f for f in verdict.findings if f.code == code]
    return finding
