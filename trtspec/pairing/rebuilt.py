"""Would transformers' AutoTokenizer make of this folder what tokenizer.json says?

The repository's preprocessing reads tokenizer.json itself. AutoTokenizer goes by `tokenizer_class`: transformers 5
takes only vocabulary, merges and post-processor from the file for the classes below and builds the rest itself;
transformers 4 takes the file but makes the post-processor anew from `add_bos_token`. Training, evaluation and
calibration that go through AutoTokenizer then see other ids than the server.

Source: `__init__` of the tokenizer classes in transformers 5.24.0 and AutoTokenizer's exceptions there
(models/auto/tokenization_auto.py); `update_post_processor` of the fast classes in transformers 4.57.6.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer

from trtspec.pairing.corpus import SIZE
from trtspec.pairing.findings import Finding
from trtspec.pairing.segmentation import differing_texts
from trtspec.pairing.special import printed_in_front
from trtspec.pairing.tokenizer import Vocabulary
from trtspec.pairing.words import Words

PLAIN_CLASS = "set tokenizer_class to PreTrainedTokenizerFast in tokenizer_config.json"
ADDS_BOS = {"LlamaTokenizer": True, "CodeLlamaTokenizer": True, "GemmaTokenizer": True, "CohereTokenizer": True,
            "GPTNeoXTokenizer": False}  # fmt: skip
"""Classes whose fast form in transformers 4 makes the post-processor anew, and their default of add_bos_token."""
AS_WRITTEN = frozenset((
    "internlm2", "internlm3", "llava", "minicpm3", "minimax_m2", "modernbert", "molmo", "nemotron", "phi3", "phimoe",
))  # fmt: skip
"""Model types of language models for which transformers 5 disregards tokenizer_class and takes the file."""
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _bytes(regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def _in_turn(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def _split(pattern: dict[str, str], behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


NFC = {"type": "NFC"}
PIPELINES: Mapping[str, tuple[Any, Any]] = {
    "GPT2Tokenizer": (None, _bytes(True)),
    "GPTNeoXTokenizer": (NFC, _bytes(True)),
    "Qwen2Tokenizer": (NFC, _in_turn(_split({"Regex": _SPLIT}, "Isolated"), _bytes(False))),
    "CohereTokenizer": (NFC, _in_turn({"type": "Digits", "individual_digits": True}, _bytes(True))),
    "GemmaTokenizer": (
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        _split({"String": " "}, "MergedWithPrevious"),
    ),
}
"""Class → (normalizer, pre_tokenizer) that transformers 5 builds. LlamaTokenizer depends on two more settings."""


def check_rebuilt(words: Words) -> Iterator[Finding]:
    """What AutoTokenizer would make otherwise: the cutting (transformers 5) and the begin token (transformers 4).

    ModelFileError: the library fails on a text.
    """
    given = words.config.get("tokenizer_class")
    if words.vocabulary is None or not isinstance(given, str):
        return
    name = given.removesuffix("Fast")
    yield from _cutting(words, words.vocabulary, name)
    yield from _begin(words, name)


def _cutting(words: Words, vocabulary: Vocabulary, name: str) -> Iterator[Finding]:
    # For this model type transformers 5 takes its own class, whatever tokenizer_config.json names.
    kind = str(words.model.get("model_type"))
    name = "Qwen2Tokenizer" if kind == "qwen2" else name
    pipeline = _llama(words) if name == "LlamaTokenizer" else PIPELINES.get(name)
    if pipeline is None or kind in AS_WRITTEN:
        return
    if vocabulary.structure["model"].get("type") != "BPE":
        return
    other = replace(vocabulary, tokenizer=_with(vocabulary, *pipeline))
    differing = list(differing_texts(vocabulary, other))
    if differing:
        kind, text = differing[0]
        yield Finding(
            "tokenizer.rebuilt", "warning" if words.role == "target" else "info", words.role,
            f"AutoTokenizer of transformers 5 makes a {name} with a pipeline of its own, not this file's: "
            f"{len(differing)} of {SIZE} sample texts are cut differently, such as {text[:40]!r} ({kind})",
            f"{PLAIN_CLASS}, or encode as the server does, with tokenizer.json itself",
            {"class": name, "count": len(differing), "kinds": sorted({kind for kind, _ in differing})},
        )  # fmt: skip


def _llama(words: Words) -> tuple[Any, Any] | None:
    assert words.vocabulary is not None
    if "ByteLevel" in json.dumps(words.vocabulary.structure.get("pre_tokenizer")):
        return None  # transformers 5 sees that this is no SentencePiece model and takes the file as it is
    first = "always" if words.config.get("legacy") is True else "first"
    scheme = "never" if words.config.get("add_prefix_space") is False else first
    return None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}


def _with(vocabulary: Vocabulary, normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
    """The same model and added tokens in another pipeline; the built model is shared."""
    parts = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None}
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    hull = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": empty} | parts))
    hull.model = vocabulary.tokenizer.model
    added = vocabulary.tokenizer.get_added_tokens_decoder()
    hull.add_tokens([added[i] for i in sorted(added)])
    return hull


def _begin(words: Words, name: str) -> Iterator[Finding]:
    bos, default = words.token("bos_token"), ADDS_BOS.get(name)
    i = words.id_of(bos)
    if default is None or i is None:
        return
    given = words.config.get("add_bos_token", default)
    adds, before = given if isinstance(given, bool) else default, words.around()[0]
    if adds == (i in before):
        return
    serious = words.role == "target" and not printed_in_front(words, [i])
    by_file, by_class = ("nothing", repr(bos)) if adds else (repr(bos), "nothing")
    yield Finding(
        "tokenizer.rebuilt", "warning" if serious else "info", words.role,
        f"tokenizer.json adds {by_file} in front of a text, AutoTokenizer of transformers 4 as {name} adds {by_class}",
        f"{PLAIN_CLASS}, or begin raw prompts with {bos!r}" if serious else None,
        {"class": name, "add_bos_token": adds, "before": before},
    )  # fmt: skip
