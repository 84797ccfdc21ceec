"""Chat templates of both models rendered and compared; templates that refuse, fail or will not end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.documents import CHAT, by_code, codes, findings, read, write
from trtspec.pairing.conversations import CONVERSATIONS, NAMES
from trtspec.pairing.findings import Finding
from trtspec.pairing.rendering import render
from trtspec.pairing.template import check_template

NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT
NO_TOOLS = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + CHAT


def pair(tmp_path: Path, target: str | None, draft: str | None) -> list[Finding]:
    texts = [{} if text is None else {"jinja": text} for text in (target, draft)]
    return findings(write(tmp_path / "t", **texts[0]), write(tmp_path / "d", **texts[1]))


def texts(source: str, **tokens: str) -> list[dict[str, str]]:
    conversations = list(CONVERSATIONS.values())
    return render({"sources": {"default": source}, "tokens": tokens, "conversations": conversations})


def test_equal_templates(tmp_path: Path) -> None:
    finding = by_code(pair(tmp_path, CHAT, CHAT + "{# a note #}"), "template.equal")
    assert (finding.severity, finding.data["conversations"]) == ("info", list(NAMES))


def test_templates_that_differ_come_with_a_diff(tmp_path: Path) -> None:
    finding = by_code(pair(tmp_path, CHAT, CHAT.replace("<|end|>", "<|end|>\n")), "template.differs")
    assert finding.severity == "warning"
    assert finding.data["differ"] == list(NAMES)
    assert finding.data["diff"][:2] == ["--- target", "+++ draft"]
    assert finding.data["at"] == len("<|user|>Where do wombats live?<|end|>")
    assert (
        "wombats live?<|end|>' the target's prints '<|assistant|>' and the draft's '\\n<|assistant|>'"
        in finding.message
    )


def test_a_difference_outside_plain_prompts_is_only_said(tmp_path: Path) -> None:
    always = CHAT.replace("{% if add_generation_prompt %}", "").replace("<|assistant|>{% endif %}", "<|assistant|>")
    finding = by_code(pair(tmp_path, CHAT, always), "template.differs")
    assert (finding.severity, finding.data["differ"]) == ("info", ["a finished answer"])
    tools = by_code(
        pair(tmp_path / "2", CHAT, CHAT + "{% if tools %}{{ tools | tojson }}{% endif %}"), "template.differs"
    )
    assert (tools.severity, tools.data["differ"]) == ("info", ["tools", "a tool call"])


@pytest.mark.parametrize(
    ("target", "draft", "without"),
    [(CHAT, None, ["draft"]), (None, CHAT, ["target"]), (None, None, ["target", "draft"])],
)
def test_models_without_a_template(tmp_path: Path, target: str, draft: str, without: list[str]) -> None:
    finding = by_code(pair(tmp_path, target, draft), "template.none")
    assert (finding.severity, finding.data["without"]) == ("info", without)


def test_a_conversation_that_one_template_refuses(tmp_path: Path) -> None:
    finding = by_code(pair(tmp_path / "1", CHAT, NO_SYSTEM), "template.refused")
    assert (finding.severity, finding.subject) == ("warning", "draft")
    assert "refuses a system prompt, the target's renders it: no system role" in finding.message
    other = by_code(pair(tmp_path / "2", NO_SYSTEM, CHAT), "template.refused")
    assert (other.severity, other.subject) == ("info", "target")
    assert codes(pair(tmp_path / "3", NO_SYSTEM, NO_SYSTEM))["template.equal"] == "info"
    assert "template.refused" not in codes(pair(tmp_path / "4", CHAT, NO_TOOLS))


def test_a_template_that_renders_nothing(tmp_path: Path) -> None:
    finding = by_code(pair(tmp_path / "1", "{% for %}", CHAT), "template.broken")
    assert (finding.severity, finding.subject) == ("error", "target")
    assert "(chat_template.jinja) renders no conversation at all: line 1" in finding.message
    assert by_code(pair(tmp_path / "2", CHAT, "{{ nothing.here.at.all }}"), "template.broken").severity == "warning"


WHERE: dict[str, dict[str, Any]] = {
    "a text": {"config": {"chat_template": CHAT}},
    "named": {"config": {"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": CHAT}]}},
    "a map": {"config": {"chat_template": {"default": CHAT}}},
    "its own file wins": {"config": {"chat_template": "other"}, "jinja": CHAT},
}


@pytest.mark.parametrize("documents", WHERE.values(), ids=WHERE)
def test_where_templates_are_found(tmp_path: Path, documents: dict[str, Any]) -> None:
    words, other = read(write(tmp_path / "t", **documents), write(tmp_path / "d", jinja=CHAT))
    assert words.rendered == other.rendered
    assert words.text(0) == "<|user|>Where do wombats live?<|end|><|assistant|>"


def test_the_json_file_of_processors(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", config={"chat_template": "other"})
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": CHAT}))
    words, _ = read(folder, folder)
    assert words.text(3) == "<|user|>Where do wombats live?<|end|><|assistant|>Wombats live in Australia.<|end|>"


@pytest.mark.parametrize("value", [5, True, [], {}, [{"name": "default"}], {"default": 7}, [7]])
def test_a_template_of_the_wrong_type(tmp_path: Path, value: Any) -> None:
    folder = write(tmp_path / "t", config={"chat_template": value})
    assert by_code(findings(folder, folder), "template.broken", "target").severity == "error"


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", jinja=b"\xff\xfe")
    assert "not UTF-8" in by_code(findings(folder, folder), "template.broken", "target").message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{% for m in messages %}{{ m.role }}{% break %}{% endfor %}", "user"),
        ("a{% generation %}b{{ bos_token }}{% endgeneration %}c", "ab<s>c"),
        ("{% for m in messages %}\n  {% if m %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}", "user\n"),
        ("{{ eos_token }}", ""),
        ("{{ messages[0]['content'].split(' ')[0] | upper }}", "WHERE"),
    ],
)
def test_helpers_that_transformers_gives(source: str, expected: str) -> None:
    assert texts(source, bos_token="<s>")[0] == {"text": expected}


def test_tools_use_their_own_template_where_there_is_one() -> None:
    job = {"sources": {"default": "d", "tool_use": "t"}, "tokens": {}, "conversations": list(CONVERSATIONS.values())}
    assert [r["text"] for r in render(job)] == ["d", "d", "d", "d", "t", "t"]
    assert render(job | {"sources": {"rag": "x"}})[0] == {"error": "there is no template named default"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}{{ ''.__class__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% for i in range(10**7) %}x{% endfor %}", "range"),
        ("{% for i in range(1000) %}{{ 'x' * 1000 }}{% endfor %}", "longer than 200,000"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{{ raise_exception('\\ud800 no') }}", "no"),
        ("{{ (" + "(" * 3000 + "1" + ")" * 3000 + ") }}", "Error"),
    ],
    ids=range(8),
)
def test_templates_run_in_a_sandbox(source: str, message: str) -> None:
    error = texts(source)[0]["error"]
    assert message in error
    error.encode()


LONG_LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize("source", ["{{ 'x' * 10**10 }}", LONG_LOOP], ids=["memory", "time"])
def test_a_hostile_template_is_stopped_and_hides_nothing(tmp_path: Path, source: str) -> None:
    words, other = read(write(tmp_path / "t", jinja=source), write(tmp_path / "d", jinja=CHAT))
    assert words.rendered is not None
    assert all("error" in result for result in words.rendered)
    assert other.text(0) is not None
    assert codes(list(check_template(words, other))) == {"template.broken": "error"}


def test_no_process_is_started_without_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trtspec.pairing.limited._spawn", None)
    folder = write(tmp_path / "t")
    assert read(folder, folder)[0].rendered is None


@pytest.mark.torch
@pytest.mark.parametrize("source", [CHAT, NO_SYSTEM, "{{ bos_token }}" + CHAT + "{{ tools | tojson if tools }}"])
def test_transformers_renders_the_same(tmp_path: Path, source: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write(
        tmp_path / "t", config={"bos_token": "<s>", "tokenizer_class": "PreTrainedTokenizerFast"}, jinja=source
    )
    oracle = transformers.AutoTokenizer.from_pretrained(folder)
    words, _ = read(folder, folder)
    for number, arguments in enumerate(CONVERSATIONS.values()):
        given = dict(arguments)
        text = words.text(number)
        if text is not None:
            assert oracle.apply_chat_template(given.pop("messages"), tokenize=False, **given) == text
