"""Near-duplicates and token salad are found; what people write is not accused."""

from __future__ import annotations

import json
import os
import random
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from trtspec.measurement.samples import SAMPLES
from trtspec.measurement.textcheck import distinct_parts, near_duplicates, random_looking

REAL = Path(os.environ.get("TRTSPEC_REAL_DATA", "/none")) / "tokenizers"
OTHER_SCRIPTS = [
    "请用三句话解释为什么天空看起来是蓝色的,并给出一个生活中的例子来帮助孩子理解。",
    "写一个函数,返回一个数字列表的中位数,如果列表为空则返回空值,并说明时间复杂度。",
    "このシステムでは、利用者がログインすると最初に設定画面が表示されます。説明してください。",
    "Объясните, почему небо кажется голубым, и приведите пример из повседневной жизни.",
    "اشرح لماذا تبدو السماء زرقاء وقدم مثالا من الحياة اليومية يساعد الأطفال على الفهم",
]


def shipped(folder: Path, name: str) -> list[str]:
    lines = (folder / "tiny/prompts" / name).read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [x["prompt"] if "prompt" in x else x["messages"][0]["content"] for x in found]


def files(tiny_config: Path) -> list[list[str]]:
    names = ("api-reference.jsonl", "type-stubs.jsonl", "python-source.jsonl")
    return [*(shipped(tiny_config.parent, name) for name in names), list(SAMPLES), OTHER_SCRIPTS]


def salad(tokenizer: Tokenizer, length: int, count: int = 40) -> list[str]:
    rng = random.Random(length)
    size = tokenizer.get_vocab_size()
    return [tokenizer.decode([rng.randrange(size) for _ in range(length)]) for _ in range(count)]


def looks(tokenizer: Tokenizer, texts: list[str]) -> int:
    ids = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
    return len(random_looking(texts, ids, tokenizer.get_vocab_size()))


@lru_cache
def tokenizers(tiny_config: Path) -> list[Tokenizer]:
    """The smallest vocabulary there is, and two real ones of different making where they are at hand."""
    real = [REAL / name / "tokenizer.json" for name in ("llama2", "qwen2_5")]
    paths = [tiny_config.parent / "tiny/target/tokenizer.json", *(path for path in real if path.is_file())]
    return [Tokenizer.from_file(str(path)) for path in paths]


def test_no_text_of_people_is_salad(tiny_config: Path) -> None:
    for tokenizer in tokenizers(tiny_config):
        assert [looks(tokenizer, texts) for texts in files(tiny_config)] == [0] * 5


@pytest.mark.parametrize("length", [16, 48, 128, 512])
def test_random_tokens_are_salad(tiny_config: Path, length: int) -> None:
    """More than the tenth of a set from which it counts against the whole."""
    for tokenizer in tokenizers(tiny_config):
        assert looks(tokenizer, salad(tokenizer, length)) >= 15


def test_salad_among_texts_is_found_alone(tiny_config: Path) -> None:
    tokenizer = tokenizers(tiny_config)[0]
    texts = shipped(tiny_config.parent, "python-source.jsonl")[:20]
    ids = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
    found = random_looking([*texts, *salad(tokenizer, 128, 20)], ids, tokenizer.get_vocab_size())
    assert found
    assert min(found) >= 20


def test_a_set_of_empty_texts_tells_nothing(tiny_config: Path) -> None:
    assert looks(tokenizers(tiny_config)[0], ["", "", "a"]) == 0


def test_shipped_prompts_hardly_repeat(tiny_config: Path) -> None:
    assert [len(near_duplicates(texts)) for texts in files(tiny_config)] == [0, 2, 1, 0, 0]


def test_near_duplicates_are_those_that_come_later() -> None:
    long = "Write a function that returns the median of a list of numbers, and explain how long it takes. " * 2
    other = "Summarize the plot of a story about a lighthouse keeper who finds a message in a bottle. " * 2
    texts = [long, other, long.replace("median", "mean"), long.upper() + "  ", other]
    assert near_duplicates(texts) == [2, 3, 4]


def test_what_all_share_is_set_aside() -> None:
    """Eight worked examples before each question do not make the questions alike."""
    shots = "Question: how many apples? Answer: four. " * 40
    questions = ["A train leaves at nine.", "Tom has three cats.", "The pool holds 40 litres."]
    texts = [f"{shots}{question} Answer:" for question in questions]
    assert near_duplicates(texts) == []
    assert distinct_parts(texts)[0].startswith("A train")


@given(st.lists(st.text(max_size=30), max_size=8))
def test_shares_are_put_aside_and_nothing_else(texts: list[str]) -> None:
    parts = distinct_parts(texts)
    assert len(parts) == len(texts)
    assert len({len(text) - len(part) for text, part in zip(texts, parts, strict=True)}) <= 1
    assert all(part in text for text, part in zip(texts, parts, strict=True))


@given(st.lists(st.text(max_size=40), min_size=1, max_size=10))
def test_an_equal_text_is_always_found(texts: list[str]) -> None:
    found = near_duplicates([*texts, texts[0]])
    assert len(texts) in found
    assert 0 not in found


def test_prompts_that_differ_in_a_number_alone_are_near_duplicates() -> None:
    """All that they share is no template: nothing else is left of them."""
    text = "Summarise the release notes of the library in a few sentences, please; variant "
    assert near_duplicates([f"{text}{i}" for i in range(4)]) == [1, 2, 3]
