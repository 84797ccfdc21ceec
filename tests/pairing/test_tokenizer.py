"""Token-to-id parity: small tokenizers made to differ, and the real ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pairing.pairs import SPECIALS, WORDS, tokenizer
from trtspec.errors import ModelFileError
from trtspec.pairing.findings import Finding
from trtspec.pairing.tokenizer import Vocabulary, compare, examine, read_vocabularies

PATH = Path("tokenizer.json")
REAL = os.environ.get("TRTSPEC_REAL_DATA")
needs_real = pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with real tokenizers")


def parse(**kwargs: Any) -> Vocabulary:
    return Vocabulary.parse(tokenizer(**kwargs).encode(), PATH)


def found(target: Vocabulary, draft: Vocabulary) -> dict[str, Finding]:
    return {finding.code: finding for finding in compare(target, draft)}


def test_equal() -> None:
    (finding,) = compare(parse(), parse())
    assert (finding.code, finding.severity, finding.data["overlap"]) == ("vocab.equal", "info", 1.0)


def test_same_size_and_other_strings() -> None:
    swapped = WORDS | {"w3": 4, "w4": 3}
    finding = found(parse(), parse(vocab=swapped))["vocab.ids-differ"]
    assert finding.severity == "error"
    assert finding.data["count"] == 2
    assert finding.data["overlap"] == 48 / 50
    assert finding.data["first"][0] == {"id": 3, "target": "w3", "draft": "w4"}
    assert "'w3' to the target and 'w4' to the draft" in finding.message


def test_long_lists_are_cut() -> None:
    reversed_words = {f"w{i}": 47 - i for i in range(48)}
    finding = found(parse(), parse(vocab=reversed_words))["vocab.ids-differ"]
    assert finding.data["count"] == 48
    assert len(finding.data["first"]) == 10


def test_ids_only_the_draft_has_are_an_error() -> None:
    findings = found(parse(), parse(added=SPECIALS | {"<x>": 50}))
    assert {code: f.severity for code, f in findings.items()} == {"vocab.draft-only": "error"}
    assert findings["vocab.draft-only"].data["first"] == [{"id": 50, "draft": "<x>"}]


def test_ids_only_the_target_has_are_a_warning_with_the_share() -> None:
    findings = found(parse(added=SPECIALS | {"<x>": 50}), parse())
    assert {code: f.severity for code, f in findings.items()} == {"vocab.target-only": "warning"}
    assert findings["vocab.target-only"].data["share"] == 1 / 51
    assert "2%" in findings["vocab.target-only"].message


def test_renamed_special_tokens_are_a_warning_and_renamed_text_an_error() -> None:
    renamed = {"<s>": 48, "<end>": 49}
    assert {c: f.severity for c, f in found(parse(), parse(added=renamed)).items()} == {
        "vocab.special-renamed": "warning"
    }
    text = found(parse(special=False), parse(added=renamed, special=False))
    assert {c: f.severity for c, f in text.items()} == {"vocab.ids-differ": "error"}


def test_ids_that_move_on_loading() -> None:
    (shifted, holes) = examine("draft", parse(added={"<s>": 48, "</s>": 60}))
    assert (shifted.code, shifted.severity, shifted.subject) == ("tokenizer.ids-shifted", "error", "draft")
    assert "'</s>' is 60 in the file and 49 to the server" in shifted.message
    assert (holes.code, holes.severity, holes.data["count"]) == ("vocab.holes", "info", 11)


def test_two_tokens_of_one_id() -> None:
    codes = [f.code for f in examine("target", parse(vocab=WORDS | {"again": 7}, added={}))]
    assert codes == ["tokenizer.ids-shared"]


def test_unigram_ids_are_positions() -> None:
    document = json.loads(tokenizer(added={}))
    document["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]}
    assert Vocabulary.parse(json.dumps(document).encode(), PATH).ids == {"<unk>": 0, "a": 1, "b": 2}


def broken(**changes: Any) -> bytes:
    return json.dumps(json.loads(tokenizer()) | changes).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff{}", "not UTF-8"),
        (b'{"model": {"vocab": {"a": 0, "a": 1}}}', "'a' is given 2 times"),
        (broken(model=None), "model.vocab is not a map"),
        (broken(model=[]), "model is not an object"),
        (broken(model={"type": "WordLevel", "vocab": {"a": "0"}}), "model.vocab is not a map"),
        (broken(model={"type": "WordLevel", "vocab": {"a": -1}}), "model.vocab is not a map"),
        (broken(model={"type": "WordLevel", "vocab": {"a": True}}), "model.vocab is not a map"),
        (broken(model={"type": "Unigram", "vocab": [[["x"], 0]]}), "model.vocab is not a map"),
        (broken(model={"type": "WordLevel", "vocab": {}}, added_tokens=[]), "has no tokens"),
        (broken(model={"type": "Unheard", "vocab": {"a": 0}}), "the tokenizers library refuses it"),
        (broken(added_tokens={"a": 1}), "added_tokens is not a list"),
        (broken(added_tokens=[{"id": "5", "content": "x"}]), "not a token"),
        (broken(added_tokens=[5]), "not a token"),
    ],
    ids=str,
)
def test_broken_tokenizers(content: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        Vocabulary.parse(content, PATH)


def test_each_folder_has_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer())
    target, draft = read_vocabularies(tmp_path, tmp_path / "nowhere")
    assert isinstance(target, Vocabulary)
    assert isinstance(draft, ModelFileError)
    same, again = read_vocabularies(tmp_path, tmp_path)
    assert same is again


@given(st.permutations(range(12)), st.integers(0, 12))
def test_every_moved_token_is_counted(order: list[int], kept: int) -> None:
    target = {f"w{i}": i for i in range(12)}
    draft = {f"w{i}": n for i, n in enumerate(order) if i < max(kept, 1)}
    moved = sum(i != n for i, n in enumerate(order) if i < max(kept, 1))
    findings = found(parse(vocab=target, added={}), parse(vocab=draft, added={}))
    differ = findings.get("vocab.ids-differ")
    assert (differ.data["count"] if differ else 0) == moved
    missing = findings.get("vocab.target-only")
    assert (missing.data["count"] if missing else 0) == 12 - len(draft)


def real(name: str) -> Path:
    assert REAL is not None
    return Path(REAL) / "tokenizers" / name


def real_findings(target: str, draft: str) -> dict[str, Finding]:
    one, other = read_vocabularies(real(target), real(draft))
    assert isinstance(one, Vocabulary)
    assert isinstance(other, Vocabulary)
    assert not [f for f in (*examine("target", one), *examine("draft", other)) if f.severity == "error"]
    return found(one, other)


@needs_real
def test_llama_3_and_3_1_have_the_same_ids() -> None:
    assert set(real_findings("llama3", "llama3_1")) == {"vocab.equal"}


@needs_real
def test_llama_2_and_mistral_share_a_size_and_little_else() -> None:
    findings = real_findings("llama2", "mistral_v1")
    assert set(findings) == {"vocab.ids-differ"}
    assert findings["vocab.ids-differ"].data["count"] == 31_730


@needs_real
def test_mistral_v3_shifts_every_regular_id() -> None:
    findings = real_findings("mistral_v3", "mistral_v1")
    assert findings["vocab.ids-differ"].severity == "error"
    assert findings["vocab.target-only"].data["count"] == 768


@needs_real
def test_qwen_3_has_four_tokens_more_than_qwen_2_5() -> None:
    assert real_findings("qwen3", "qwen2_5")["vocab.target-only"].data["count"] == 4
    assert real_findings("qwen2_5", "qwen3")["vocab.draft-only"].data["count"] == 4
