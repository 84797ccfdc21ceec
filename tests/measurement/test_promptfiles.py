"""Prompts for a bare model folder, in its own tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.conftest import PROJECT
from trtspec.errors import ConfigError, ModelFileError
from trtspec.measurement.promptfiles import BUILT_IN, domain_of, token_prompts
from trtspec.measurement.samples import SAMPLES, random_ids

TARGET = PROJECT / "configs" / "tiny" / "target"
PROMPTS = PROJECT / "configs" / "tiny" / "prompts"


def test_chats_go_through_the_models_template_and_begin_once() -> None:
    (first, *_) = token_prompts(TARGET, [PROMPTS / "api-reference.jsonl"])
    assert first.ids[:2] == (0, 3)  # begin, user: not two begins
    assert first.ids[-1] == 4
    assert (first.domain, first.max_tokens) == ("api-reference", 96)


def test_texts_are_encoded_as_they_are_served() -> None:
    (first, *_) = token_prompts(TARGET, [PROMPTS / "type-stubs.jsonl"])
    line = json.loads((PROMPTS / "type-stubs.jsonl").read_text().splitlines()[0])
    assert list(first.ids) == Tokenizer.from_file(str(TARGET / "tokenizer.json")).encode(line["prompt"]).ids


def test_files_keep_their_domains_and_every_prompt_has_its_own_seed() -> None:
    found = token_prompts(TARGET, sorted(PROMPTS.glob("*.jsonl")), seed=5)
    assert list(dict.fromkeys(p.domain for p in found)) == ["api-reference", "python-source", "type-stubs"]
    assert [p.seed for p in found] == list(range(5, 5 + len(found)))


def test_without_files_there_are_built_in_ones() -> None:
    found = token_prompts(TARGET, [], max_tokens=9)
    assert len(found) == len(SAMPLES) == len({p.ids for p in found})
    assert {(p.domain, p.max_tokens) for p in found} == {(BUILT_IN, 9)}


def test_answers_are_cut_to_the_room_and_prompts_that_leave_none_are_named(tmp_path: Path) -> None:
    whole = token_prompts(TARGET, [PROMPTS / "api-reference.jsonl"])
    longest = max(len(p.ids) for p in whole)
    found = token_prompts(TARGET, [PROMPTS / "api-reference.jsonl"], room=longest + 2)
    assert all(len(p.ids) + p.max_tokens <= longest + 2 for p in found)
    with pytest.raises(ConfigError, match="no room for an answer"):
        token_prompts(TARGET, [PROMPTS / "api-reference.jsonl"], room=longest)


def test_a_file_without_a_domain_is_one_by_its_name(tmp_path: Path) -> None:
    for name, domain in (("my prompts (new).jsonl", "my-prompts-new"), ("_.jsonl", "prompts"), ("code.jsonl", "code")):
        path = tmp_path / name
        path.write_text('\n{"prompt": "x"}\n')
        assert domain_of(path) == domain
        assert token_prompts(TARGET, [path])[0].domain == domain
    path.write_text('{"prompt": "x", "domain": "legal"}\n')
    assert domain_of(path) == "legal"


@pytest.mark.parametrize("content", ["not json", "[1]", '{"prompt": 1}', ""])
def test_faults_are_those_of_prompts_with_their_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"\S"):
        token_prompts(TARGET, [path])


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no tokenizer\.json"):
        token_prompts(tmp_path, [])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFileError, match="cannot read the tokenizer"):
        token_prompts(tmp_path, [])


@given(count=st.integers(1, 5), length=st.integers(1, 20), vocabulary=st.integers(1, 100))
def test_random_ids_are_ids_and_repeatable(count: int, length: int, vocabulary: int) -> None:
    found = random_ids(count, length, vocabulary)
    assert found == random_ids(count, length, vocabulary)
    assert [len(ids) for ids in found] == [length] * count
    assert all(0 <= i < vocabulary for ids in found for i in ids)
