"""Tables and conversations: every form of file gives the same prompts, and errors name the place."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.config.validation import Dataset
from trtspec.errors import ConfigError
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.promptrows import rows_of
from trtspec.measurement.prompts import PromptSet, read_sets

CHAT = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{% endfor %}<assistant>")
Turn = dict[str, str]


def read(path: Path, text: str) -> PromptSet:
    path.write_text(text, "utf-8")
    (found,) = read_sets(Dataset(path=path, domain="chat"), CHAT, 0, 64)
    return found


def test_a_table(tmp_path: Path) -> None:
    text = 'id,prompt,max_tokens,reference\na,"def f(\nx"")",5,\n\nb,x,,y\n'
    found = read(tmp_path / "p.csv", text)
    assert [(p.id, p.text, p.max_tokens, p.reference) for p in found.prompts] == [
        ("a", 'def f(\nx")', 5, None),
        ("b", "x", 64, "y"),
    ]


def by_language(path: Path, *languages: str) -> tuple[PromptSet, ...]:
    rows = [json.dumps({"prompt": f"in {name}", "language": name}) for name in languages]
    path.write_text("\n".join(rows), "utf-8")
    return read_sets(Dataset(path=path, domain="code", domain_key="language"), CHAT, 0, 64)


def test_domains_that_the_file_tells_apart_stay_apart(tmp_path: Path) -> None:
    assert [s.domain for s in by_language(tmp_path / "p.jsonl", "c", "rust/unsafe", "c")] == ["c", "rust-unsafe"]
    with pytest.raises(ConfigError, match=r"p.jsonl:2: two domains get the name 'c' \(found 'c\+\+' and 'c#'"):
        by_language(tmp_path / "p.jsonl", "c++", "c#")
    with pytest.raises(ConfigError, match="name it in ASCII"):
        by_language(tmp_path / "p.jsonl", "コード")


def test_tabs(tmp_path: Path) -> None:
    assert read(tmp_path / "p.tsv", "prompt\tignore_eos\na, b\ttrue\n").prompts[0].ignore_eos


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("prompt,id\nx\n", "p.csv:2", "1 cells.*header has 2"),
        ("prompt,max_tokens\nx,many\n", "p.csv:2", "whole number"),
        ('prompt\n"a\nb"\n"a\nb",c\n', "p.csv:4", "2 cells"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, place: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path / "p.csv", text)
    assert caught.value.where == str(tmp_path / place)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1), min_size=1, max_size=8))
def test_a_table_holds_any_text(texts: list[str]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["prompt"], *([text] for text in texts)])
    rows = rows_of(Dataset(path=Path("p.csv"), domain="chat"), out.getvalue())
    assert [row.data["prompt"] for row in rows] == texts


def turns(*said: tuple[str, str]) -> list[Turn]:
    return [{"from": speaker, "value": text} for speaker, text in said]


def test_conversations(tmp_path: Path) -> None:
    """The first question is asked; what follows needs the model's own answers."""
    entries = [
        {"id": "a", "conversations": turns(("human", "Hi"), ("gpt", "Hello."), ("human", "More"))},
        {"id": "b", "conversations": turns(("system", "Be brief."), ("user", "Why?"), ("assistant", "So."))},
        {"id": "half", "conversations": turns(("gpt", "…and so on."), ("human", "Go on"))},
        {"id": "empty", "conversations": []},
        {"id": "c", "conversations": turns(("human", "Alone"))},
    ]
    found = read(tmp_path / "sharegpt.json", json.dumps(entries))
    assert [(p.id, p.text, p.reference) for p in found.prompts] == [
        ("a", "<user>Hi<assistant>", "Hello."),
        ("b", "<system>Be brief.<user>Why?<assistant>", "So."),
        ("c", "<user>Alone<assistant>", None),
    ]
    assert found.skipped == 2


def test_a_list_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one list of entries.*`format`"):
        read(tmp_path / "p.json", "{}")
    with pytest.raises(ConfigError, match="JSON object") as caught:
        read(tmp_path / "p.json", '[{"prompt": "x"}, 3]')
    assert caught.value.where == f"{tmp_path / 'p.json'}, entry 2"
