"""Token-to-id parity of small tokenizers made to differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.pairing.pairs import SPECIALS, WORDS, tokenizer
from trtspec.pairing.findings import Finding
from trtspec.pairing.tokenizer import Vocabulary
from trtspec.pairing.vocabulary import Differences, compare, examine


def parse(**kwargs: Any) -> Vocabulary:
    return Vocabulary.parse(tokenizer(**kwargs).encode(), Path("tokenizer.json"))


def found(target: Vocabulary, draft: Vocabulary) -> dict[str, Finding]:
    return {finding.code: finding for finding in compare(target, draft, Differences.of(target, draft))}


def test_equal() -> None:
    finding = found(parse(), parse())["vocab.equal"]
    assert (finding.severity, finding.data["overlap"]) == ("info", 1.0)
    assert (finding.data["target_base"], finding.data["target_added"]) == (48, 2)
    assert finding.message == "all 50 token ids (48 base and 2 added) mean the same string"


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


def test_renamed_control_tokens_are_not_equal_and_renamed_text_is_an_error() -> None:
    renamed = {"<s>": 48, "<end>": 49}
    target, draft = parse(), parse(added=renamed)
    assert found(target, draft) == {}
    assert Differences.of(target, draft).renamed == [49]
    text = found(parse(special=False), parse(added=renamed, special=False))
    assert {code: f.severity for code, f in text.items()} == {"vocab.ids-differ": "error"}


def test_ids_that_move_on_loading() -> None:
    (shifted, holes) = examine("draft", parse(added={"<s>": 48, "</s>": 60}))
    assert (shifted.code, shifted.severity, shifted.subject) == ("tokenizer.ids-shifted", "error", "draft")
    assert "'</s>' is 60 in the file and 49 to the server" in shifted.message
    assert (holes.code, holes.severity, holes.data["count"]) == ("vocab.holes", "info", 11)


def test_two_tokens_of_one_id() -> None:
    codes = [f.code for f in examine("target", parse(vocab=WORDS | {"again": 7}, added={}))]
    assert codes == ["tokenizer.ids-shared"]


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
    assert ("vocab.equal" in findings) is (target == draft)
