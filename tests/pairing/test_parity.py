"""The checks of tokenizers as a whole: damaged and hostile documents never raise and never look equal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pairing.documents import ADDED, CHAT, codes, findings, read, write
from tests.pairing.pairs import check, tokenizer, write_pair
from tests.pairing.test_tokenizer import bpe
from trtspec.pairing.conversations import CONVERSATIONS
from trtspec.pairing.findings import Finding
from trtspec.pairing.parity import check_words
from trtspec.pairing.rendering import render
from trtspec.pairing.words import Template

GENERATION = {"eos_token_id": [49, 53], "bos_token_id": 48, "pad_token_id": 49}
CONFIG = {
    "tokenizer_class": "LlamaTokenizerFast",
    "bos_token": "<s>",
    "eos_token": {"content": "</s>", "lstrip": False},
    "added_tokens_decoder": {str(i): {"content": t, "special": True} for t, i in ADDED.items()},
    "add_bos_token": True,
}
MODEL = {"model_type": "llama", "eos_token_id": 49, "vocab_size": 54}
WORDS = json.loads(bpe(["a a", "a b", "b b"], tuple(ADDED)))
DOCUMENTS = {
    "words": WORDS,
    "config": CONFIG,
    "generation": GENERATION,
    "model": MODEL,
    "special_map": {"bos_token": "<s>"},
}
FUZZ = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.integers(), st.floats(allow_nan=False), st.text(max_size=5),
    st.sampled_from(["<s>", "</s>", "\ud800", "BPE", "Unigram", "ByteLevel", [], {}, [[]], {"content": 5}, "a" * 1000]),
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """The document with a few keys or elements dropped, replaced, renamed, doubled or swapped, at any depth."""
    value = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        at = value
        while isinstance(at, (dict, list)) and at:
            key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if isinstance(at[key], (dict, list)) and at[key] and draw(st.booleans()):
                at = at[key]
                continue
            _damage(draw, at, key)
            break
    return value


def _damage(draw: st.DrawFn, at: Any, key: Any) -> None:
    way = draw(st.sampled_from(["drop", "replace", "swap", "rename", "double", "nest"]))
    if way == "drop":
        del at[key]
    elif way == "replace":
        at[key] = draw(leaves)
    elif way == "swap":
        other = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        at[key], at[other] = at[other], at[key]
    elif way == "nest":
        at[key] = [at[key]]
    elif isinstance(at, dict):
        at[draw(st.text(max_size=4))] = at[key] if way == "double" else at.pop(key)
    else:
        at.append(at[key])


def id_map(data: bytes) -> dict[str, int] | None:
    """What the file says, read in the plainest way; None where that is not possible."""
    try:
        document = json.loads(data)
        return document["model"]["vocab"] | {entry["content"]: entry["id"] for entry in document["added_tokens"]}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def sound(found: list[Finding], target: Path, draft: Path) -> None:
    """Every finding can be printed and written as JSON, and no changed id map is called equal."""
    for finding in found:
        json.dumps(finding.as_dict())
        f"{finding.message}{finding.fix}".encode()
    maps = [id_map((folder / "tokenizer.json").read_bytes()) for folder in (target, draft)]
    if "vocab.equal" in codes(found):
        assert maps[0] == maps[1] is not None


@FUZZ
@given(st.data())
def test_damaged_documents(tmp_path: Path, data: st.DataObject) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    which = data.draw(st.sampled_from(list(DOCUMENTS)))
    documents = {name: json.dumps(document) for name, document in DOCUMENTS.items()}
    changed = documents | {which: json.dumps(data.draw(damaged(DOCUMENTS[which])))}
    folders = write(tmp_path / "t", **documents), write(tmp_path / "d", **changed)
    for target, draft in (folders, folders[::-1]):
        sound(findings(target, draft, {"target": 54, "draft": 54}), target, draft)


@FUZZ
@given(st.data())
def test_damaged_bytes(tmp_path: Path, data: st.DataObject) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    which = data.draw(st.sampled_from(list(DOCUMENTS)))
    documents = {name: json.dumps(document).encode() for name, document in DOCUMENTS.items()}
    content = bytearray(documents[which])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.one_of(st.none(), st.integers(0, len(content))))])
    target, draft = write(tmp_path / "t", **documents), write(tmp_path / "d", **(documents | {which: cut}))
    sound(findings(target, draft), target, draft)


@FUZZ
@given(
    st.permutations(range(10)), st.sampled_from(["permute", "rename", "drop", "duplicate", "shift"]), st.integers(0, 9)
)
def test_a_changed_id_map_is_never_equal(tmp_path: Path, order: list[int], way: str, n: int) -> None:
    shutil.rmtree(tmp_path, ignore_errors=True)
    names = [f"w{i}" for i in range(10)]
    vocab = dict(zip(names, range(10), strict=True))
    other = {
        "permute": dict(zip(names, order, strict=True)),
        "rename": {("x" if i == n else t): i for t, i in vocab.items()},
        "drop": {t: i for t, i in vocab.items() if i != n},
        "duplicate": vocab | {"x": n},
        "shift": {t: i + (i >= n) for t, i in vocab.items()},
    }[way]
    words = [tokenizer(vocab=v, added={"<s>": 10}) for v in (vocab, other)]
    target, draft = write(tmp_path / "t", words=words[0]), write(tmp_path / "d", words=words[1])
    found = findings(target, draft)
    sound(found, target, draft)
    said = codes(found)
    assert ("vocab.equal" in said) is (vocab == other)
    if vocab != other:
        assert {"error", "warning"} & {s for c, s in said.items() if c.startswith(("vocab.", "tokenizer."))}


PIECES = """
{{ messages }}¦{% for m in messages %}¦{% endfor %}¦{{ m.content }}¦{% if tools %}¦{% endif %}¦{{ bos_token }}¦
{{ m['content'] | upper }}¦{{ m.x.y }}¦{%- set a = a ~ 'b' -%}¦{{ raise_exception('n') }}¦{% macro f(x) %}¦
{% endmacro %}¦{{ f(1) }}¦{{ '\\ud800' }}¦<|end|>¦{{¦%}¦{#¦\0¦é¦{{ messages[5] }}¦{{ strftime_now(3) }}¦
{{ none + 1 }}¦{{ range(200000) }}¦{% break %}
"""
pieces = st.sampled_from(PIECES.replace("\n", "").split("¦"))


@FUZZ
@given(st.lists(pieces, max_size=8), st.lists(pieces, max_size=8))
def test_any_template(tmp_path: Path, one: list[str], other: list[str]) -> None:
    if not (tmp_path / "t").exists():
        write(tmp_path / "t"), write(tmp_path / "d")
    both = read(tmp_path / "t", tmp_path / "d")
    for words, source in zip(both, ("".join(one), "".join(other)), strict=True):
        words.template = Template({"default": source}, "chat_template.jinja")
        job = {
            "sources": words.template.sources,
            "tokens": {"bos_token": "<s>"},
            "conversations": [*CONVERSATIONS.values()],
        }
        words.rendered = json.loads(json.dumps(render(job)))
    sound(list(check_words(*both, {})), tmp_path / "t", tmp_path / "d")


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json", "generation_config.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b'{"a": 1, "a": 2}', b'{"a":' * 100_000, b'{"a": NaN}'],
                         ids=range(6))  # fmt: skip
def test_a_broken_document_fails_the_pair(tmp_path: Path, name: str, content: bytes) -> None:
    folder = write(tmp_path / "t", jinja=CHAT)
    (folder / name).write_bytes(content)
    code = "stops.broken" if name == "generation_config.json" else "tokenizer.config-broken"
    assert codes(findings(folder, folder))[code] == "error"


def test_the_whole_check_holds_these_findings(tmp_path: Path) -> None:
    write_pair(tmp_path)
    (tmp_path / "target" / "generation_config.json").write_text('{"eos_token_id": 48}')
    (tmp_path / "draft" / "tokenizer_config.json").write_text('{"chat_template": 5}')
    said = codes(list(check(tmp_path).findings))
    assert (said["stops.set"], said["stops.differ"], said["template.broken"]) == ("info", "warning", "error")
