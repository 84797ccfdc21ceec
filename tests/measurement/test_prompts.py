"""Prompt files: every bad line is one error with file:line, and a draw depends on the seed alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtspec.config.validation import Dataset, Validation
from trtspec.errors import ConfigError
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.prompts import Prompt, load_all, load_prompts, load_sets, read_sets, shuffled

CHAT = ChatTemplate(
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}",
    {"bos_token": "<s>"},
)


def write(folder: Path, *lines: object, name: str = "code.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


def load(path: Path, limit: int | None = None, seed: int = 0, chat: ChatTemplate | None = CHAT) -> list[Prompt]:
    return load_prompts(Dataset(path=path, domain="code", limit=limit), chat, seed, 64)


def test_prompts_and_messages(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": "a", "prompt": "def f(", "max_tokens": 5, "score": "kept by its owner"},
        "",
        {"domain": "code", "messages": [{"role": "user", "content": "Hi"}]},
    )
    assert load(path) == [
        Prompt("a", "code", "def f(", 5),
        Prompt("code:3", "code", "<s><user>Hi<assistant>", 64),
    ]


def test_a_line_separator_inside_a_text_is_no_line_end(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"id": "a", "prompt": "x\u2028y"}, ensure_ascii=False))
    assert load(path)[0].text == "x\u2028y"


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "bom.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "prompt": "x"}\r\n')
    assert load(path)[0].text == "x"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "JSON object"),
        ({"id": "b"}, "exactly one of `prompt`, `messages` and `conversations`"),
        ({"prompt": "x", "messages": []}, "exactly one"),
        ({"prompt": ""}, "not empty"),
        ({"prompt": 3}, "not empty"),
        ({"prompt": "\ud800"}, "surrogate"),
        ({"prompt": "x", "id": 7.5}, "`id`"),
        ({"prompt": "x", "reference": 4}, "reference"),
        ({"prompt": "x", "ignore_eos": 1}, "`ignore_eos`"),
        ({"conversations": "x"}, "list of turns"),
        ({"conversations": ["x"]}, "`from` and `value`"),
        ({"prompt": "x", "id": "a"}, "given twice"),
        ({"prompt": "x", "max_tokens": 0}, "`max_tokens`"),
        ({"prompt": "x", "max_tokens": True}, "`max_tokens`"),
        ({"prompt": "x", "max_tokens": "64"}, "`max_tokens`"),
        ({"prompt": "x", "domain": "law"}, "the dataset's domain is 'code'"),
        ({"messages": []}, "list of"),
        ({"messages": [{"role": "user"}]}, "`role` and `content`"),
        ({"messages": ["Hi"]}, "list of"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path, {"id": "a", "prompt": "x"}, line)
    with pytest.raises(ConfigError, match=message) as caught:
        load(path)
    assert caught.value.where == f"{path}:2"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "code.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match="no prompts"):
        load(path)


def test_a_missing_file_names_its_domain(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="domain 'code'"):
        load(tmp_path / "none.jsonl")


def test_other_encodings_are_refused_at_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"prompt": "x"}\n{"prompt": "\xe9"}\n')
    with pytest.raises(ConfigError, match="UTF-8") as caught:
        load(path)
    assert caught.value.where == f"{path}:2"


def test_a_draw_is_made_by_the_seed_and_keeps_the_order(tmp_path: Path) -> None:
    path = write(tmp_path, *({"id": f"{i:03}", "prompt": f"x{i}"} for i in range(50)))
    first, again, other = (load(path, 10, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [p.id for p in first] == sorted(p.id for p in first)
    assert len(first) == 10
    assert len(load(path, 99)) == 50


def test_a_prompt_that_was_there_before_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "x"}, {"prompt": "y"}, {"prompt": "x"}, {"prompt": "x", "max_tokens": 3})
    (found,) = read_sets(Dataset(path=path, domain="code"), None, 0, 64)
    assert [p.id for p in found.prompts] == ["code:1", "code:2", "code:4"]
    assert (found.available, found.duplicates, found.skipped) == (4, 1, 0)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_of_several_domains(tmp_path: Path) -> None:
    """As MT-Bench and SPEED-Bench name them: `category`, `turns`, a number for an id."""
    lines = [{"question_id": i, "category": c, "turns": [f"{c} {i}?", "And then?"], "reference": ["Yes.", "No."]}
             for i, c in enumerate(["math", "stem & co", "math", "math"])]  # fmt: skip
    path = write(tmp_path, *lines)
    dataset = Dataset(path=path, domain="other", domain_key="category", prompt_key="turns", chat=True, limit=2)
    sets = read_sets(dataset, CHAT, 0, 64)
    assert [(s.domain, len(s.prompts), s.available) for s in sets] == [("math", 2, 3), ("stem-co", 1, 1)]
    assert sets[1].prompts[0].text == "<s><user>stem & co 1?<assistant>"
    assert sets[1].prompts[0].reference == "Yes."


def test_references_and_keys_of_other_sets(tmp_path: Path) -> None:
    """As GSM8K names them."""
    path = write(tmp_path, {"question": "2 + 2?", "answer": "#### 4"})
    dataset = Dataset(path=path, domain="code", prompt_key="question", reference_key="answer")
    assert load_prompts(dataset, None, 0, 64) == [Prompt("code:1", "code", "2 + 2?", 64, reference="#### 4")]


def test_one_domain_from_two_files_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path, {"prompt": "x", "category": "law"}, name="many.jsonl")
    two = write(tmp_path, {"prompt": "y"}, name="law.jsonl")
    validation = Validation(
        datasets=(Dataset(path=one, domain="rest", domain_key="category"), Dataset(path=two, domain="law"))
    )
    with pytest.raises(ConfigError, match=r"'law' comes from two datasets.*many\.jsonl"):
        load_sets(validation, None)


@given(st.integers(0, 1000), st.lists(st.sampled_from(["law", "code", "math"]), min_size=1, max_size=40))
def test_a_shuffle_keeps_domains_where_they_were(seed: int, domains: list[str]) -> None:
    prompts = [Prompt(str(i), d, f"text {i}", 8) for i, d in enumerate(domains)]
    order = shuffled(prompts, seed)
    assert [p.domain for p in order] == domains
    assert sorted(order, key=lambda p: int(p.id)) == prompts
    assert shuffled(prompts, seed) == order


def test_all_datasets_in_order(tmp_path: Path) -> None:
    files = [write(tmp_path, {"prompt": "x"}, name=f"{domain}.jsonl") for domain in ("law", "code")]
    validation = Validation(datasets=tuple(Dataset(path=f, domain=f.stem) for f in files), max_tokens=7)
    assert load_all(validation, None) == [Prompt("law:1", "law", "x", 7), Prompt("code:1", "code", "x", 7)]
    with pytest.raises(ConfigError, match="nothing to validate with"):
        load_all(Validation(), None)


def test_messages_without_a_template_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"messages": [{"role": "user", "content": "Hi"}]})
    with pytest.raises(ConfigError, match="has none"):
        load(path, chat=None)


def test_a_template_that_refuses_is_named_with_the_line(tmp_path: Path) -> None:
    strict = ChatTemplate("{{ raise_exception('only users here') }}", where="tokenizer_config.json")
    path = write(tmp_path, {"messages": [{"role": "system", "content": "Hi"}]})
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json: .*only users here") as caught:
        load(path, chat=strict)
    assert caught.value.where == f"{path}:1"


def test_the_shipped_prompts_are_readable(tiny_config: Path) -> None:
    folder = tiny_config.parent / "tiny"
    chat = ChatTemplate.read(folder / "target")
    for path in sorted((folder / "prompts").glob("*.jsonl")):
        prompts = load_prompts(Dataset(path=path, domain=path.stem), chat, 0, 64)
        assert len(prompts) >= 20
        assert not any(p.text.startswith("<|bos|><|bos|>") for p in prompts)
