"""Prompts become the token ids that the served pipeline would make of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trtspec.errors import ModelFileError
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.prompts import Prompt
from trtspec.measurement.tokens import Limits, PromptEncoder, token_prompts

TARGET = Path(__file__).parents[2] / "configs" / "tiny" / "target"
ROOM = Limits(64, 96)


def test_a_text_gets_one_bos_whether_or_not_it_brings_its_own() -> None:
    encoder = PromptEncoder(TARGET)
    plain = encoder.ids("def f(x):")
    assert plain[0] == 0
    assert encoder.ids("<|bos|>def f(x):") == plain
    template = ChatTemplate.read(TARGET)
    assert template is not None
    ids = encoder.ids("<|bos|>" + template.render([{"role": "user", "content": "Hello"}]))
    assert ids.count(0) == 1


def test_padding_and_truncation_of_the_file_are_switched_off(tmp_path: Path) -> None:
    document = json.loads((TARGET / "tokenizer.json").read_text())
    document["truncation"] = {"max_length": 2, "direction": "Right", "strategy": "LongestFirst", "stride": 0}
    document["padding"] = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 2,
                           "pad_type_id": 0, "pad_token": "<|pad|>"}  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert PromptEncoder(tmp_path).ids("import sys, os") == PromptEncoder(TARGET).ids("import sys, os")


def test_prompts_that_cannot_be_measured_are_told(tmp_path: Path) -> None:
    encoder = PromptEncoder(TARGET)
    prompts = [
        Prompt("good", "a", "import sys", 8),
        Prompt("long", "a", "word " * 80, 8),
        Prompt("wide", "b", "import sys", 95),
        Prompt("also good", "b", "import os", 8),
    ]
    taken, left = token_prompts(prompts, encoder, ROOM, [2048, 2048], seed=10)
    assert [(p.id, p.seed) for p in taken] == [("good", 10), ("also good", 11)]
    assert [(p.id, reason.split(";")[1].split("(")[0].strip()) for p, reason in left] == [
        ("long", "at most 64 are served"),
        ("wide", "at most 96 fit together"),
    ]
    taken, left = token_prompts(prompts[:1], encoder, ROOM, [2048, 10], seed=0)
    assert not taken
    assert "which a model does not have" in left[0][1]


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        PromptEncoder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFileError, match="cannot read the tokenizer"):
        PromptEncoder(tmp_path)
