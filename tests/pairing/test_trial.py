"""A tokenizer's pipeline is tried in a process with limits before it is loaded, and only what runs away fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.documents import write
from tests.pairing.pairs import check, only, tokenizer, write_pair
from trtspec.errors import ModelFileError
from trtspec.pairing import limited
from trtspec.pairing.tokenizer import Vocabulary, read_vocabularies
from trtspec.pairing.trial import STOPPED, job_of, tried

SPLIT = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False}
GROWS = {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 2000}


def with_parts(**parts: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(tokenizer()) | parts
    return document


def in_turn(*parts: Any) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def test_a_pipeline_that_needs_all_memory_fails_the_pair(tmp_path: Path) -> None:
    write_pair(tmp_path)
    path = tmp_path / "draft" / "tokenizer.json"
    path.write_text(json.dumps(with_parts(normalizer=in_turn(GROWS, GROWS, GROWS))))
    finding = only(check(tmp_path), "tokenizer.broken")
    assert (finding.severity, finding.subject) == ("error", "draft")
    assert finding.message == f"{path}: {STOPPED}"


def test_added_tokens_go_through_the_pipeline_too() -> None:
    grows = {"type": "Replace", "pattern": {"String": "\u26c4"}, "content": "\u26c4" * 2000}
    document = with_parts(normalizer=in_turn(grows, grows, grows))
    # No sample text has a snowman: only the added token grows.
    document["added_tokens"][0] |= {"content": "\u26c4", "normalized": True}
    job = job_of(document)
    assert job is not None
    # Behind it, in the same process, a sound one: it is not hidden.
    sound = job_of(with_parts(pre_tokenizer=SPLIT))
    assert sound is not None
    assert tried([job, sound, job]) == [False, True, False]


def test_a_file_that_the_library_refuses_is_not_said_to_be_stopped(tmp_path: Path) -> None:
    broken = write(tmp_path / "t", words=json.dumps(with_parts(pre_tokenizer=SPLIT | {"pattern": {"Regex": "((("}})))
    sound = write(tmp_path / "d", words=json.dumps(with_parts(pre_tokenizer=SPLIT)))
    one, other = read_vocabularies(broken, sound)
    assert isinstance(one, ModelFileError)
    assert "refuses it" in one.what
    assert isinstance(other, Vocabulary)


@pytest.mark.parametrize(
    ("parts", "needed"),
    [
        ({}, False),
        ({"normalizer": in_turn({"type": "Prepend", "prepend": "▁"}, {"type": "NFC"})}, False),
        ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}, False),
        ({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}}, False),
        ({"pre_tokenizer": SPLIT}, True),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"pretokenizers": [SPLIT]}]}}, True),
        ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "longer"}}, True),
        ({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": ""}}, True),
        ({"normalizer": {"type": "Replace", "pattern": {"String": "``"}, "content": "x"}}, False),
        ({"normalizer": {"type": "Prepend", "prepend": "x" * 1000}}, True),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}, True),
        ({"normalizer": in_turn(*[{"type": "NFC"}] * 9)}, True),
        ({"normalizer": {"type": "Replace", "pattern": 3, "content": None}}, True),
        ({"normalizer": [1], "pre_tokenizer": "x"}, False),
    ],
)  # fmt: skip
def test_what_could_run_away_is_tried(parts: dict[str, Any], needed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (job_of(with_parts(**parts)) is not None) is needed
    monkeypatch.setattr(limited, "_spawn", None)
    assert tried([]) == []


def test_equal_pipelines_are_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Sequence[str]] = []
    started = limited.answering

    def watched(worker: str, jobs: Sequence[str]) -> Any:
        seen.append(jobs)
        return started(worker, jobs)

    monkeypatch.setattr(limited, "answering", watched)
    document = with_parts(pre_tokenizer=SPLIT)
    other = json.loads(json.dumps(document))
    other["model"]["vocab"]["w47"], other["model"]["vocab"]["w46"] = 46, 47
    folders = [write(tmp_path / n, words=json.dumps(d)) for n, d in (("t", document), ("d", other))]
    assert all(isinstance(found, Vocabulary) for found in read_vocabularies(*folders))
    assert [len(jobs) for jobs in seen] == [1]
