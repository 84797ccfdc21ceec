"""What is said of prompts, and what of it speaks against a release."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from trtspec.measurement.datasets import Vocabulary, dataset_problems, dataset_rows
from trtspec.measurement.prompts import Prompt, PromptSet
from trtspec.measurement.samples import SAMPLES


def prompt_set(texts: list[str], **changes: object) -> PromptSet:
    prompts = tuple(Prompt(str(i), "chat", text, 64) for i, text in enumerate(texts))
    plain = PromptSet("chat", "chat.jsonl", "0" * 64, prompts, len(texts), 0, 0, synthetic=False)
    return replace(plain, **changes)  # type: ignore[arg-type]


def told(found: PromptSet, vocabulary: Vocabulary | None = None, *, ignore_eos: bool = False) -> dict[str, str]:
    rows = dataset_rows([found], vocabulary, ignore_eos)
    return {p.code: p.severity for p in dataset_problems(rows)}


def test_real_prompts_have_nothing_against_them(tiny_config: Path) -> None:
    vocabulary = Vocabulary(tiny_config.parent / "tiny/target")
    (row,) = dataset_rows([prompt_set(list(SAMPLES))], vocabulary, ignore_eos=False)
    assert (row.prompts, row.near_duplicates, row.random_tokens, row.synthetic) == (16, 0, 0, False)
    assert told(prompt_set(list(SAMPLES)), vocabulary) == {}


def test_random_tokens_are_synthetic(tiny_config: Path) -> None:
    vocabulary = Vocabulary(tiny_config.parent / "tiny/target")
    rng = random.Random(0)
    tokenizer = Tokenizer.from_file(str(tiny_config.parent / "tiny/target/tokenizer.json"))
    salad = [tokenizer.decode([rng.randrange(vocabulary.size) for _ in range(32)]) for _ in range(20)]
    (row,) = dataset_rows([prompt_set(salad)], vocabulary, ignore_eos=False)
    assert row.random_tokens == 20
    assert row.synthetic
    assert told(prompt_set(salad), vocabulary) == {"dataset.random-tokens": "release"}


def test_without_a_tokenizer_nobody_can_say() -> None:
    (row,) = dataset_rows([prompt_set(list(SAMPLES))], None, ignore_eos=False)
    assert row.random_tokens is None


@pytest.mark.parametrize(("copies", "severity"), [(1, "note"), (4, "release")])
def test_near_duplicates(copies: int, severity: str) -> None:
    found = prompt_set([*SAMPLES, *(f"{SAMPLES[i]}!" for i in range(copies))])
    assert told(found) == {"dataset.near-duplicates": severity}


def test_what_is_declared_or_was_left_out() -> None:
    texts = list(SAMPLES)
    assert told(prompt_set(texts, synthetic=True)) == {"dataset.synthetic": "release"}
    assert told(prompt_set(texts, duplicates=2, skipped=1)) == {"dataset.duplicates": "note", "dataset.skipped": "note"}
    assert told(prompt_set(texts), ignore_eos=True) == {"dataset.ignore-eos": "release"}
    one = prompt_set(texts)
    marked = replace(one, prompts=(replace(one.prompts[0], ignore_eos=True), *one.prompts[1:]))
    assert told(marked) == {"dataset.ignore-eos": "release"}
