"""All 72 ordered pairs of the nine real tokenizers, against a table made without the package (data/README.md)."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.documents import codes
from trtspec.pairing.conversations import rendering
from trtspec.pairing.parity import check_words
from trtspec.pairing.tokenizer import Vocabulary
from trtspec.pairing.vocabulary import Differences, examine
from trtspec.pairing.words import Words

REAL = os.environ.get("TRTSPEC_REAL_DATA")
pytestmark = pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with real tokenizers")
TRUTH: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "truth.json").read_text())
# What the pairs with one id map add to the table: reasoned by hand from the files.
SURVIVORS = {
    # Llama 3's file stops on <|end_of_text|> only, 3.1's on <|eot_id|>, with which both templates end a turn.
    "llama3 llama3_1": {"stops.differ", "stops.turn-end"},
    "llama3_1 llama3": {"stops.differ"},
    # Qwen 3's template prints <think> and the tool tokens that the 2.5 file lacks; the 2.5 template is a short one.
    "qwen3 qwen2_5": {"vocab.target-only", "special.missing", "template.differs"},
}


@cache
def words(name: str) -> Words:
    """Each tokenizer is parsed and rendered once for all pairs."""
    assert REAL is not None
    folder = Path(REAL) / "tokenizers" / name
    found = Words.read("target", folder)
    with rendering([found]):
        found.vocabulary = Vocabulary.parse((folder / "tokenizer.json").read_bytes(), folder / "tokenizer.json")
    return found


def as_role(name: str, role: Any) -> Words:
    given = words(name)
    return Words(
        role, given.folder, given.config, given.special_map, given.generation, given.model, given.template,
        given.rendered, given.vocabulary,
    )  # fmt: skip


@pytest.mark.parametrize("name", TRUTH["models"])
def test_each_real_tokenizer(name: str) -> None:
    truth, vocabulary = TRUTH["models"][name], words(name).vocabulary
    assert vocabulary is not None
    assert (len(vocabulary.by_id), vocabulary.base) == (truth["tokens"], truth["base"])
    assert (len(vocabulary.special), vocabulary.last_id) == (truth["special"], truth["last_id"])
    assert list(examine("target", vocabulary)) == []


def test_the_table_is_whole() -> None:
    names = list(TRUTH["models"])
    assert len(names) == 9
    assert set(TRUTH["pairs"]) == {f"{a} {b}" for a in names for b in names if a != b}
    assert {pair for pair, truth in TRUTH["pairs"].items() if not truth["fails"]} == set(SURVIVORS)


@pytest.mark.parametrize("pair", TRUTH["pairs"])
def test_each_pair(pair: str) -> None:
    target, draft = (as_role(n, role) for n, role in zip(pair.split(), ("target", "draft"), strict=True))
    truth = TRUTH["pairs"][pair]
    assert target.vocabulary is not None
    assert draft.vocabulary is not None
    found = Differences.of(target.vocabulary, draft.vocabulary)
    counted = (found.same, len(found.clashing), len(found.renamed), len(found.draft_only), len(found.target_only))
    assert counted == tuple(truth[k] for k in ("same", "clashing", "renamed", "draft_only", "target_only"))
    assert list(found.clashing[:3]) == truth["first"]
    said = codes(list(check_words(target, draft, {})))
    expected = set(truth["codes"])
    if truth["clashing"]:  # names of control tokens are not worth a line where the ids of text clash
        expected.discard("vocab.special-renamed")
    assert {code for code in said if code.startswith("vocab.")} == expected
    assert ("error" in said.values()) is truth["fails"]
    assert truth["fails"] or {code for code, severity in said.items() if severity == "warning"} == SURVIVORS[pair]
