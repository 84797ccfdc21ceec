"""Do the two tokenizers cut a text into the same tokens? One id map can be reached on two ways.

The target's tokenizer makes the ids of every prompt, for both models, so a draft that cuts otherwise receives no wrong
ids. But it learned from text cut its own way: there the target's tokens surprise it, and its guesses are rejected
more often. Different encodings are therefore a warning. Lists of merges may differ without any effect (a conversion
from tiktoken has twice as many as the original): what is written otherwise and encodes alike is no fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trtspec.pairing.corpus import CORPUS, SIZE
from trtspec.pairing.findings import Finding
from trtspec.pairing.special import printed_in_front
from trtspec.pairing.tokenizer import Vocabulary
from trtspec.pairing.vocabulary import Differences
from trtspec.pairing.words import Words

PARTS = ("normalizer", "pre_tokenizer", "decoder", "post_processor")
DEFAULTS = {"ignore_merges": False, "byte_fallback": False, "fuse_unk": False, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "dropout": None, "unk_token": None}  # fmt: skip
"""Settings of a BPE model that older files leave out, and what the library takes for them."""
_NOTHING = (None, "", {"type": "Sequence", "normalizers": []}, {"type": "Sequence", "pretokenizers": []},
            {"type": "Sequence", "processors": []}, {"type": "Sequence", "decoders": []})  # fmt: skip
SHOWN = 5
TEXT_SHOWN = 40


def check_segmentation(target: Words, draft: Words, found: Differences) -> Iterator[Finding]:
    """Structure and encodings; nothing where ids clash or move on loading: segmentation says nothing then.

    ModelFileError: the library fails on a text.
    """
    one, other = target.vocabulary, draft.vocabulary
    if one is None or other is None or not found.comparable or one.moved or other.moved:
        return
    if one is other:
        message = "the two tokenizer.json are the same, byte for byte"
        yield Finding("segmentation.equal", "info", "pair", message, None, {"texts": 0, "parts": []}, "one file")
        return
    yield _encodings(one, other)
    yield from _around(target, draft)


def differing_parts(one: Vocabulary, other: Vocabulary) -> list[str]:
    """Names of the parts that the two files write differently; an empty part and an absent one are the same."""
    parts = [name for name in PARTS if _plain(one.structure.get(name)) != _plain(other.structure.get(name))]
    models = [vocabulary.structure["model"] for vocabulary in (one, other)]
    keys = sorted({key for model in models for key in model})
    parts += [f"model.{key}" for key in keys if _setting(models[0], key) != _setting(models[1], key)]
    return parts + (["merges"] if one.merges is not other.merges and one.merges != other.merges else [])


def _plain(part: Any) -> Any:
    return None if part in _NOTHING else part


def _setting(model: Mapping[str, Any], key: str) -> Any:
    value = model.get(key, DEFAULTS.get(key))
    return None if value in ("", None) else value


def _encodings(one: Vocabulary, other: Vocabulary) -> Finding:
    parts = differing_parts(one, other)
    differing = list(differing_texts(one, other))
    data: dict[str, Any] = {"texts": SIZE, "parts": parts, "merges": _merges(one, other) if "merges" in parts else None}
    if differing:
        return _cut_differently(differing, one, other, data)
    message = f"all {SIZE} sample texts are cut into the same tokens"
    message += f", although {_list(parts)} {'is' if len(parts) == 1 else 'are'} written otherwise" if parts else ""
    return Finding("segmentation.equal", "info", "pair", message, None, data, f"{SIZE} texts cut alike")


def _cut_differently(
    differing: Sequence[tuple[str, str]], one: Vocabulary, other: Vocabulary, data: dict[str, Any]
) -> Finding:
    kinds = Counter(kind for kind, _ in differing)
    first = [_shown(kind, text, one, other) for kind, text in differing[:SHOWN]]
    message = (
        f"{len(differing)} of {SIZE} sample texts are cut differently ({_list([*kinds])}): "
        f"{first[0]['text']!r} is {first[0]['target']} tokens to the target and {first[0]['draft']} to the draft"
    )
    data |= {"count": len(differing), "share": len(differing) / SIZE, "kinds": dict(kinds), "first": first}
    if all(_by_missing_tokens(text, one, other) for _, text in differing):
        message += "; only by added tokens that one of them lacks"
        return Finding("segmentation.differs", "info", "pair", message, None, data)
    parts = data["parts"]
    message += f"; {_list(parts)} differ{'s' if len(parts) == 1 else ''}" if parts else ""
    fix = "if one tokenizer.json was converted, take the model's own; measure acceptance on such text"
    return Finding("segmentation.differs", "warning", "pair", message, fix, data)


def _by_missing_tokens(text: str, one: Vocabulary, other: Vocabulary) -> bool:
    """Whether an added token that the other model lacks is what cuts the text differently."""
    return any(
        a.by_id.get(i) in a.added and i not in b.by_id for a, b in ((one, other), (other, one)) for i in a.encode(text)
    )


def differing_texts(one: Vocabulary, other: Vocabulary) -> Iterator[tuple[str, str]]:
    """(kind, text) of the corpus that the two encode differently, without what the post-processors add."""
    for kind, texts in CORPUS.items():
        for text in texts:
            if one.encode(text) != other.encode(text):
                yield kind, text


def _shown(kind: str, text: str, one: Vocabulary, other: Vocabulary) -> dict[str, Any]:
    a, b = one.encode(text), other.encode(text)
    return {"kind": kind, "text": text[:TEXT_SHOWN], "target": len(a), "draft": len(b),
            "target_ids": a[:TEXT_SHOWN], "draft_ids": b[:TEXT_SHOWN]}  # fmt: skip


def _merges(one: Vocabulary, other: Vocabulary) -> dict[str, Any]:
    same_set = len(one.merges) == len(other.merges) and set(one.merges) == set(other.merges)
    return {"target": len(one.merges), "draft": len(other.merges), "other_order": same_set}


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _around(target: Words, draft: Words) -> Iterator[Finding]:
    """What each post-processor puts around a text: the begin token of most models."""
    ours, theirs = target.around(), draft.around()
    if ours == theirs:
        return
    lost = [i for i in theirs[0] if i not in ours[0]]
    matters = bool(lost) and not printed_in_front(target, lost)
    told = (_told(words, ids) for words, ids in ((target, ours), (draft, theirs)))
    message = "around a text the target's tokenizer adds {} and the draft's {}".format(*told)
    message += ": a raw prompt lacks what the draft expects in front" if matters else "; the target's is used for both"
    brief = None if matters else "other tokens around a text"
    fix = f"begin raw prompts with {target.name_of(lost[0])}, or send chat prompts" if matters else None
    data = {"target": ours, "draft": theirs}
    yield Finding("segmentation.special", "warning" if matters else "info", "pair", message, fix, data, brief)


def _told(words: Words, around: tuple[list[int], list[int]]) -> str:
    before, after = (" ".join(map(words.name_of, ids)) for ids in around)
    both = " and ".join(
        part for part in (f"{before} before" if before else "", f"{after} behind" if after else "") if part
    )
    return both or "nothing"
