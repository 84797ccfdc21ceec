"""Chat templates as model folders hold them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from trtspec.errors import ConfigError
from trtspec.measurement.chat import ChatTemplate

SOURCE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}"
HELLO = [{"role": "user", "content": "hello"}]


def folder(path: Path, *, adds_bos: bool = False, **config: object) -> Path:
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"} | config))
    return path


def rendered(path: Path) -> str:
    chat = ChatTemplate.read(path)
    assert chat is not None
    return chat.render(HELLO)


def test_template_in_the_tokenizers_configuration(tmp_path: Path) -> None:
    assert rendered(folder(tmp_path, chat_template=SOURCE)) == "<s>hello</s>"


def test_a_begin_token_that_the_tokenizer_adds_is_not_rendered(tmp_path: Path) -> None:
    assert rendered(folder(tmp_path, adds_bos=True, chat_template=SOURCE)) == "hello</s>"


def test_named_templates_and_token_objects(tmp_path: Path) -> None:
    named = [{"name": "tools", "template": "no"}, {"name": "default", "template": SOURCE}]
    assert rendered(folder(tmp_path, chat_template=named, eos_token={"content": "<end>"})) == "<s>hello<end>"


def test_a_template_in_its_own_file_wins(tmp_path: Path) -> None:
    folder(tmp_path, chat_template="other")
    (tmp_path / "chat_template.jinja").write_text(SOURCE)
    assert rendered(tmp_path) == "<s>hello</s>"


def test_no_template_is_none(tmp_path: Path) -> None:
    assert ChatTemplate.read(tmp_path) is None
    assert ChatTemplate.read(folder(tmp_path)) is None


@pytest.mark.parametrize("content", ["{", "[]", '"text"'])
def test_a_broken_configuration_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(ConfigError, match="tokenizer's configuration"):
        ChatTemplate.read(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for %}", "not a valid template"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ''.__class__.__mro__ }}{{ ''.__class__() }}", "refuses"),
        ("{{ messages.append(1) }}", "refuses"),
    ],
)
def test_templates_run_in_a_sandbox(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ChatTemplate(source).render(HELLO)


def test_blocks_leave_no_blank_lines() -> None:
    source = "{% for m in messages %}\n  {% if m %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}"
    assert ChatTemplate(source).render(HELLO) == "hello\n"
