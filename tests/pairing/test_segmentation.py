"""Equal ids reached on other ways: structure, encodings, and what is put around a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.documents import CHAT, by_code, codes, findings, write
from tests.pairing.test_tokenizer import bpe
from trtspec.pairing.corpus import CORPUS, SIZE

BASE = ["a a", "aa a", "aa aa"]
OTHER_ORDER = ["a a", "aa aa", "aa a"]
LOWER = {"type": "Lowercase"}


def around(token: str, i: int) -> dict[str, Any]:
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, sequence],
        "pair": [sequence, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}},
    }


def pair(tmp_path: Path, target: bytes, draft: bytes, **documents: Any) -> list[Any]:
    return findings(write(tmp_path / "t", words=target, **documents), write(tmp_path / "d", words=draft))


def test_equal_files(tmp_path: Path) -> None:
    finding = by_code(pair(tmp_path, bpe(BASE), bpe(BASE)), "segmentation.equal")
    assert (finding.severity, finding.data["texts"]) == ("info", 0)
    assert "byte for byte" in finding.message


def test_the_same_merges_in_another_order_cut_runs_differently(tmp_path: Path) -> None:
    ids = json.loads(bpe(BASE))["model"]["vocab"]
    other = json.loads(bpe(OTHER_ORDER))
    other["model"]["vocab"] = ids  # the same ids: only the order of merges differs
    found = pair(tmp_path, bpe(BASE), json.dumps(other).encode())
    assert codes(found)["vocab.equal"] == "info"
    finding = by_code(found, "segmentation.differs")
    assert finding.severity == "warning"
    assert finding.data["parts"] == ["merges"]
    assert finding.data["merges"] == {"target": 3, "draft": 3, "other_order": True}
    assert "long words" in finding.data["kinds"]
    assert finding.data["share"] == finding.data["count"] / SIZE
    assert "merges differs" in finding.message


def test_merges_without_effect_are_no_fault(tmp_path: Path) -> None:
    # "a" "ab" never stand side by side: "a a" comes first.
    one, other = bpe(["a a", "aa b", "a b"]), bpe(["a a", "aa b", "a b", "a ab"])
    document = json.loads(other)
    document["model"]["vocab"] = json.loads(one)["model"]["vocab"]
    finding = by_code(pair(tmp_path, one, json.dumps(document).encode()), "segmentation.equal")
    assert (finding.severity, finding.data["parts"]) == ("info", ["merges"])
    assert (
        finding.message == f"all {SIZE} sample texts are cut into the same tokens, although merges is written otherwise"
    )


def test_parts_that_are_written_otherwise_and_mean_the_same(tmp_path: Path) -> None:
    document = json.loads(bpe(BASE, normalizer={"type": "Sequence", "normalizers": []}))
    del document["model"]["byte_fallback"]
    document["model"] |= {"ignore_merges": False, "end_of_word_suffix": ""}
    finding = by_code(pair(tmp_path, bpe(BASE), json.dumps(document).encode()), "segmentation.equal")
    assert finding.data["parts"] == []


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer"])
def test_another_pipeline(tmp_path: Path, part: str) -> None:
    changed = {"normalizer": LOWER, "pre_tokenizer": {"type": "Digits", "individual_digits": True}}[part]
    merges = ["a a", "aa a", "b b"]
    found = pair(tmp_path, bpe(merges), bpe(merges, **{part: changed}))
    assert by_code(found, "segmentation.differs").data["parts"] == [part]
    assert codes(found)["vocab.equal"] == "info"


def test_nothing_is_said_where_ids_clash(tmp_path: Path) -> None:
    found = pair(tmp_path, bpe(["a a"]), bpe(["a b"]))
    assert codes(found)["vocab.ids-differ"] == "error"
    assert not [f for f in found if f.code.startswith("segmentation.")]


def test_texts_cut_otherwise_only_by_a_missing_added_token(tmp_path: Path) -> None:
    found = pair(tmp_path, bpe(BASE, ("<s>", "</s>")), bpe(BASE, ("<s>",)))
    finding = by_code(found, "segmentation.differs")
    assert (finding.severity, set(finding.data["kinds"])) == ("info", {"special-token text"})


def test_what_the_draft_expects_in_front_and_does_not_get(tmp_path: Path) -> None:
    plain, adding = bpe(BASE, ("<s>",)), bpe(BASE, ("<s>",), post_processor=around("<s>", 5))
    finding = by_code(pair(tmp_path / "1", plain, adding), "segmentation.special")
    assert (finding.severity, finding.data["draft"]) == ("warning", ([5], []))
    assert "adds nothing and the draft's 5 '<s>' before" in finding.message
    other_way = by_code(pair(tmp_path / "2", adding, plain), "segmentation.special")
    assert other_way.severity == "info"
    printed = pair(tmp_path / "3", plain, adding, jinja="<s>" + CHAT)
    assert by_code(printed, "segmentation.special").severity == "info"
    assert codes(printed)["segmentation.equal"] == "info"


def test_a_tokenizer_that_fails_on_a_text_is_broken(tmp_path: Path) -> None:
    document = json.loads(bpe(BASE))
    document["model"] = {"type": "WordLevel", "vocab": document["model"]["vocab"], "unk_token": "absent"}
    other = document | {"normalizer": LOWER}
    found = pair(tmp_path, json.dumps(document).encode(), json.dumps(other).encode())
    assert codes(found)["tokenizer.broken"] == "error"


def test_the_corpus_bites() -> None:
    texts = [text for kind in CORPUS.values() for text in kind]
    assert len(set(texts)) == SIZE
    assert max(len(run) for text in texts for run in text.split("x") if not run.strip(" ")) >= 64
    assert any("\r\n" in text for text in texts)
    assert any(any(len(word) > 300 for word in text.split()) for text in texts)
    assert not any("\ud800" <= character <= "\udfff" for text in texts for character in text)
    scripts = {ord(character) >> 7 for text in texts for character in text}
    assert len(scripts) > 60
