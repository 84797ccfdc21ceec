"""What AutoTokenizer would make of a folder, without importing transformers; one test compares with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.documents import CHAT, findings, read, write
from tests.pairing.test_segmentation import around
from tests.pairing.test_tokenizer import bpe
from trtspec.pairing.findings import Finding
from trtspec.pairing.rebuilt import PIPELINES, check_rebuilt

REAL = os.environ.get("TRTSPEC_REAL_DATA")
MERGES = ["a a", "b b"]


def rebuilt(tmp_path: Path, words: bytes, **documents: Any) -> list[Finding]:
    folder = write(tmp_path / "t", words=words, **documents)
    return [f for f in findings(folder, folder) if f.code == "tokenizer.rebuilt" and f.subject == "target"]


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend", "SomeTokenizer", 5, None])
def test_classes_that_take_the_file_as_it_is(tmp_path: Path, name: Any) -> None:
    assert rebuilt(tmp_path, bpe(MERGES), config={"tokenizer_class": name}) == []


@pytest.mark.parametrize("name", [*PIPELINES, "LlamaTokenizer", "LlamaTokenizerFast"])
def test_a_class_with_another_pipeline(tmp_path: Path, name: str) -> None:
    words = bpe(MERGES, normalizer={"type": "Lowercase"})
    (finding,) = rebuilt(tmp_path, words, config={"tokenizer_class": name})
    assert finding.severity == "warning"
    assert finding.data["class"] == name.removesuffix("Fast")
    assert "PreTrainedTokenizerFast" in str(finding.fix)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_class_whose_pipeline_the_file_has(tmp_path: Path, name: str) -> None:
    normalizer, pre_tokenizer = PIPELINES[name]
    words = bpe(MERGES, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    assert rebuilt(tmp_path, words, config={"tokenizer_class": name}) == []


def test_the_model_type_decides_before_the_class(tmp_path: Path) -> None:
    words = bpe(MERGES, normalizer={"type": "Lowercase"})
    config = {"tokenizer_class": "LlamaTokenizerFast"}
    assert rebuilt(tmp_path, words, config=config, model={"model_type": "phi3"}) == []
    (finding,) = rebuilt(tmp_path, words, config=config, model={"model_type": "qwen2"})
    assert finding.data["class"] == "Qwen2Tokenizer"


def test_the_begin_token_of_transformers_4(tmp_path: Path) -> None:
    byte_level = {"pre_tokenizer": PIPELINES["GPT2Tokenizer"][1]}
    config = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>"}
    (finding,) = rebuilt(tmp_path / "1", bpe(MERGES, ("<s>",), **byte_level), config=config)
    assert (finding.severity, finding.data["add_bos_token"]) == ("warning", True)
    chat = rebuilt(tmp_path / "2", bpe(MERGES, ("<s>",), **byte_level), config=config, jinja="{{ bos_token }}" + CHAT)
    assert [f.severity for f in chat] == ["info"]
    adding = bpe(MERGES, ("<s>",), post_processor=around("<s>", 4), **byte_level)
    assert rebuilt(tmp_path / "3", adding, config=config) == []
    (off,) = rebuilt(tmp_path / "4", adding, config=config | {"add_bos_token": False})
    assert "adds nothing" in off.message


@pytest.mark.torch
@pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with real tokenizers")
@pytest.mark.parametrize("name", ["deepseek_v3", "llama3", "qwen2_5"])
def test_transformers_4_says_the_same_of_real_tokenizers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = Path(str(REAL)) / "tokenizers" / name
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    words, _ = read(folder, folder)
    assert words.vocabulary is not None
    same = loaded.encode("a") == words.vocabulary.encode("a", special=True)
    assert same is not any("add_bos_token" in f.data for f in check_rebuilt(words))
    text = "  two\n\nlines, " + " " * 40 + json.dumps({"é": 1234})
    assert loaded.encode(text, add_special_tokens=False) == words.vocabulary.encode(text)
