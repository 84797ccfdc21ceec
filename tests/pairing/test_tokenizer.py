"""Reading one tokenizer.json, strictly, and what the library makes of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.pairs import WORDS, tokenizer
from trtspec.errors import ModelFileError
from trtspec.pairing.tokenizer import Vocabulary, read_vocabularies

PATH = Path("tokenizer.json")
REAL = os.environ.get("TRTSPEC_REAL_DATA")
needs_real = pytest.mark.skipif(REAL is None, reason="TRTSPEC_REAL_DATA names no folder with real tokenizers")


def parse(**kwargs: Any) -> Vocabulary:
    return Vocabulary.parse(tokenizer(**kwargs).encode(), PATH)


def test_base_and_added_tokens_make_the_effective_vocabulary() -> None:
    vocabulary = parse(added={"<s>": 48, "</s>": 49, "w7": 7})
    assert (vocabulary.base, len(vocabulary.added), len(vocabulary.by_id), vocabulary.last_id) == (48, 3, 50, 49)
    assert vocabulary.special == {"<s>", "</s>", "w7"}
    assert vocabulary.is_special(48)
    assert not vocabulary.is_special(5)
    assert not vocabulary.is_special(99)


def test_the_long_lists_are_not_kept() -> None:
    assert parse().structure["model"] == {"type": "WordLevel", "unk_token": "w0"}
    assert "added_tokens" not in parse().structure


def test_unigram_ids_are_positions() -> None:
    document = json.loads(tokenizer(added={}))
    document["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]}
    assert Vocabulary.parse(json.dumps(document).encode(), PATH).ids == {"<unk>": 0, "a": 1, "b": 2}


def test_padding_and_truncation_of_the_file_are_off() -> None:
    padding = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
               "pad_type_id": 0, "pad_token": "w0"}  # fmt: skip
    vocabulary = Vocabulary.parse(broken(padding=padding), PATH)
    assert vocabulary.encode("<s></s>") == [48, 49]


def bpe(merges: list[Any], added: tuple[str, ...] = (), **parts: Any) -> bytes:
    """A small BPE tokenizer.json over a, b and what the merges make."""
    pairs = [m.split(" ") if isinstance(m, str) else m for m in merges]
    pieces = dict.fromkeys(["a", "b", *(left + right for left, right in pairs)])
    document = json.loads(tokenizer(added={t: len(pieces) + n for n, t in enumerate(added)})) | parts
    model = {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges, "dropout": None,
             "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
             "byte_fallback": False}  # fmt: skip
    return json.dumps(document | {"model": model}).encode()


def test_both_spellings_of_merges_are_one() -> None:
    old, new = bpe(["a a", "aa b"]), bpe([["a", "a"], ["aa", "b"]])
    assert Vocabulary.parse(old, PATH).merges == Vocabulary.parse(new, PATH).merges == ["a a", "aa b"]


def folders(tmp_path: Path, one: bytes, other: bytes) -> tuple[Path, Path]:
    for name, content in (("one", one), ("other", other)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "tokenizer.json").write_bytes(content)
    return tmp_path / "one", tmp_path / "other"


def test_equal_files_are_parsed_once(tmp_path: Path) -> None:
    one, other = read_vocabularies(*folders(tmp_path, bpe(["a a"]), bpe(["a a"])))
    assert one is other


def test_a_shared_model_encodes_as_one_of_its_own(tmp_path: Path) -> None:
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<y>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<y>": {"id": "<y>", "ids": [4], "tokens": ["<y>"]}},
    }
    lower = {"type": "Lowercase"}
    one, other = bpe(["a a"], ("<x>",)), bpe(["a a"], ("<x>", "<y>"), post_processor=template, normalizer=lower)
    first, second = read_vocabularies(*folders(tmp_path, one, other))
    alone = Vocabulary.parse(other, PATH)
    assert isinstance(first, Vocabulary)
    assert isinstance(second, Vocabulary)
    assert second.merges is first.merges
    for text in ("AAb<y>a", "<x>aaa", ""):
        assert second.encode(text, special=True) == alone.encode(text, special=True)
    assert second.encode("AA", special=True) == [4, 2]
    assert first.encode("aa<y>", special=True)[0] == 2


@needs_real
def test_the_real_shared_pair_is_as_each_alone() -> None:
    folder = Path(str(REAL)) / "tokenizers"
    _, shared = read_vocabularies(folder / "llama3", folder / "llama3_1")
    alone = Vocabulary.parse((folder / "llama3_1" / "tokenizer.json").read_bytes(), PATH)
    assert isinstance(shared, Vocabulary)
    assert shared.tokenizer.get_vocab() == alone.tokenizer.get_vocab()
    assert (shared.ids, shared.added, shared.moved) == (alone.ids, alone.added, {})
    for text in ("Hello <|eot_id|>\n\nworld", " " * 40 + "x", "你好"):
        assert shared.encode(text, special=True) == alone.encode(text, special=True)


def broken(**changes: Any) -> bytes:
    return json.dumps(json.loads(tokenizer()) | changes).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff{}", "not UTF-8"),
        (b'{"model": ' + b"[" * 100_000, "nested too deeply|not valid JSON"),
        (b'{"model": {"vocab": {"a": 0, "a": 1}}}', "'a' is given 2 times"),
        (broken(model=None), "model.vocab is not a map"),
        (broken(model=[]), "model is not an object"),
        (broken(model={"type": "WordLevel", "vocab": {"a": "0"}}), "model.vocab is not a map"),
        (broken(model={"type": "WordLevel", "vocab": {"a": -1}}), "model.vocab is not a map"),
        (broken(model={"type": "WordLevel", "vocab": {"a": True}}), "model.vocab is not a map"),
        (broken(model={"type": "Unigram", "vocab": [[["x"], 0]]}), "model.vocab is not a map"),
        (broken(model={"type": "WordLevel", "vocab": {}}, added_tokens=[]), "has no tokens"),
        (broken(model={"type": "Unheard", "vocab": {"a": 0}}), "the tokenizers library refuses it"),
        (broken(model={"type": "BPE", "vocab": {"a": 0}, "merges": [[1]]}), "the tokenizers library refuses it"),
        (broken(normalizer={"type": "Unheard"}), "the tokenizers library refuses it"),
        (broken(added_tokens={"a": 1}), "added_tokens is not a list"),
        (broken(added_tokens=[{"id": "5", "content": "x"}]), "not a token"),
        (broken(added_tokens=[5]), "not a token"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_broken_tokenizers(content: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        Vocabulary.parse(content, PATH)


def test_each_folder_has_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer())
    target, draft = read_vocabularies(tmp_path, tmp_path / "nowhere")
    assert isinstance(target, Vocabulary)
    assert isinstance(draft, ModelFileError)


def test_a_library_that_fails_on_a_text_is_an_error() -> None:
    document = json.loads(tokenizer())
    document["model"] = {"type": "WordLevel", "vocab": WORDS, "unk_token": "absent"}
    vocabulary = Vocabulary.parse(json.dumps(document).encode(), PATH)
    with pytest.raises(ModelFileError, match="cannot encode 'x'"):
        vocabulary.encode("x")
