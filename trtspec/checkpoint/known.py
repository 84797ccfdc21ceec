"""Published facts of well-known models, for hub ids whose files are not on this machine (known.yaml beside this)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trtspec.checkpoint.facts import ModelFacts
from trtspec.checkpoint.spelling import common_names

DATA = Path(__file__).with_name("known.yaml")


@dataclass(frozen=True)
class KnownModel:
    """One published model. `parameters` is the text model's, tied weights once."""

    id: str
    config: Mapping[str, Any]
    """Its config.json as far as it is known."""
    facts: ModelFacts
    tokenizer: str
    """Its space of token ids, such as `llama-3.1`."""
    text: str
    """Spaces with equal `text` agree on the ids of ordinary text."""
    tokens: int
    parameters: int
    base: str | None
    """The hub id it was trained on from, where that is another family's or an older model."""
    sources: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    """Keys of its config.json that no source states."""


def known(hub_id: str) -> KnownModel | None:
    """The published model of this id, upper and lower case alike; None when it is not among them."""
    row = _rows().get(hub_id.lower())
    return None if row is None else _model(row)


def near(hub_id: str) -> str | None:
    """The id of the published model spelt most like this one; None when none is close."""
    given = hub_id.lower()
    longer = [name for name in _rows() if name.startswith(given)]
    found = longer or difflib.get_close_matches(given, _rows(), n=1, cutoff=0.8)
    return _rows()[found[0]]["id"] if found else None


def known_ids() -> tuple[str, ...]:
    """Every id there is, in the order of the file."""
    return tuple(row["id"] for row in _rows().values())


def _model(row: Mapping[str, Any]) -> KnownModel:
    space, names = _document()["tokenizers"][row["tokenizer"]], _document()["sources"]
    return KnownModel(
        id=row["id"],
        config=row["config"],
        facts=ModelFacts.parse(common_names(row["config"]), DATA),
        tokenizer=row["tokenizer"],
        text=space["text"],
        tokens=row["tokens"],
        parameters=row["parameters"],
        base=row.get("base"),
        sources=tuple(_source(text, names) for text in row["sources"]),
        unconfirmed=tuple(row.get("unconfirmed", ())),
    )


def _source(text: str, names: Mapping[str, str]) -> str:
    """`litgpt: Llama-2-7b-hf` with its first word written out."""
    short = text.split(":")[0].split(" ")[0]
    return names[short] + text[len(short) :] if short in names else text


@cache
def _rows() -> dict[str, dict[str, Any]]:
    return {row["id"].lower(): row for row in _document()["models"]}


@cache
def _document() -> dict[str, Any]:
    import yaml

    # The C loader reads it in 9 ms, the pure one in 60.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load(DATA.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 (safe loaders)
    return document
