"""A tokenizer.json, read once and strictly: its ids as the file declares them and as the library loads them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from trtspec.checkpoint.jsonfile import Keys, parse_object, read_bytes
from trtspec.errors import ModelFileError
from trtspec.pairing.trial import FLAGS, STOPPED, job_of, tried

FILE = "tokenizer.json"
LIMIT = 128 << 20
"""Bytes; the largest published ones have 35 million."""
WRITE_IT = "write it with AutoTokenizer.from_pretrained(...).save_pretrained(...)"
_BULKY = ("vocab", "merges")


@dataclass(frozen=True)
class Vocabulary:
    """Base and added tokens of one model, and the tokenizer that a server makes of them."""

    ids: Mapping[str, int]
    by_id: Mapping[int, str]
    shared: Mapping[int, str]
    """Ids with a second token, and that token."""
    base: int
    """Tokens of `model.vocab`; the added ones come on top unless they are among these already."""
    added: Mapping[str, Mapping[str, bool]]
    """Added tokens and their FLAGS."""
    moved: Mapping[str, int | None]
    """Tokens that the library gives another id than the file declares, and that id."""
    structure: Mapping[str, Any]
    """The rest of the document: normalizer, pre_tokenizer, post_processor, decoder, and the model's settings."""
    merges: Sequence[str]
    """`left right` in order of priority; empty for a model without merges."""
    tokenizer: Tokenizer
    """Loaded, without padding and truncation, as the repository's preprocessing uses it."""

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Vocabulary:
        """Read both ways; ModelFileError when either refuses the file."""
        return _Document(data, path).vocabulary()

    @property
    def last_id(self) -> int:
        """The largest id: one less than the rows that a model needs, whatever the number of tokens."""
        return max(self.by_id)

    @property
    def special(self) -> frozenset[str]:
        """Added tokens marked special: control tokens, not text."""
        return frozenset(token for token, flags in self.added.items() if flags["special"])

    def is_special(self, i: int) -> bool:
        """Whether the id belongs to a special token."""
        flags = self.added.get(self.by_id.get(i, ""))
        return flags is not None and flags["special"]

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of `text`; `special` adds what the post-processor puts around. ModelFileError where the library fails."""
        try:
            ids: list[int] = self.tokenizer.encode(text, add_special_tokens=special).ids
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in the library is not an Exception
            raise ModelFileError(f"the tokenizers library cannot encode {text[:20]!r}: {_first_line(error)}") from None
        return ids


def read_vocabularies(target: Path, draft: Path) -> tuple[Vocabulary | ModelFileError, Vocabulary | ModelFileError]:
    """Both folders' vocabularies, or why there is none. Equal files, and equal models in them, are built once.

    Nothing of a file is run here before its pipeline has been tried in a process with limits.
    """
    contents = [_content(folder / FILE) for folder in (target, draft)]
    first = _document(contents[0], target / FILE)
    same = contents[0] == contents[1] and isinstance(first, _Document)
    second = first if same else _document(contents[1], draft / FILE)
    contents.clear()
    first, second = _tried(first, second)
    if same:
        one = _parsed(first, None)
        return one, one
    like = (
        first if isinstance(first, _Document) and isinstance(second, _Document) and first.same_model(second) else None
    )
    one = _parsed(first, None)
    return one, _parsed(second, one if like is not None and isinstance(one, Vocabulary) else None)


class _Document:
    """The JSON of one tokenizer.json and its bytes, until the vocabulary is made."""

    def __init__(self, data: bytes, path: Path) -> None:
        self.data, self.path = data, path
        self.json = parse_object(data, path)

    def same_model(self, other: _Document) -> bool:
        """Whether the two have one BPE model: vocabulary, merges and settings."""
        model = self.json.get("model")
        return isinstance(model, dict) and model.get("type") == "BPE" and model == other.json.get("model")

    def vocabulary(self, like: Vocabulary | None = None) -> Vocabulary:
        """Everything the checks need; of `like`, which has the same model, the built model is shared."""
        added = dict(_added(self.json, self.path))
        base = _model_vocab(self.json, self.path)
        ids = base | {token: i for token, (i, _) in added.items()}
        if not ids:
            raise ModelFileError("has no tokens", where=self.path)
        by_id: dict[int, str] = {}
        shared = {i: token for token, i in ids.items() if by_id.setdefault(i, token) != token}
        tokenizer = self._built(like)
        moved = _moved(tokenizer, ids, added)
        merges = _merges(self.json) if like is None else like.merges
        flags = {token: given for token, (_, given) in added.items()}
        return Vocabulary(
            ids, by_id, shared, len(base), flags, moved, _structure(self.json), merges, tokenizer
        )  # fmt: skip

    def _built(self, like: Vocabulary | None) -> Tokenizer:
        try:
            tokenizer = Tokenizer.from_buffer(self.data) if like is None else self._around(like)
            tokenizer.no_padding()
            tokenizer.no_truncation()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in the library is not an Exception
            what = f"the tokenizers library refuses it: {_first_line(error)}"
            raise ModelFileError(what, where=self.path) from None
        return tokenizer

    def _around(self, like: Vocabulary) -> Tokenizer:
        """The tokenizer of this file around the model of `like`: loading a model takes most of the time."""
        model = self.json["model"] | {"vocab": {}, "merges": []}
        hull = Tokenizer.from_str(json.dumps(self.json | {"model": model, "added_tokens": []}))
        hull.model = like.tokenizer.model
        hull.add_tokens([
            AddedToken(entry["content"], **{flag: entry.get(flag) is True for flag in FLAGS})
            for entry in self.json.get("added_tokens") or []
        ])  # fmt: skip
        return hull


def _content(path: Path) -> bytes | ModelFileError:
    try:
        return read_bytes(path, limit=LIMIT, fix=WRITE_IT)
    except ModelFileError as error:
        return error


def _document(content: bytes | ModelFileError, path: Path) -> _Document | ModelFileError:
    if isinstance(content, ModelFileError):
        return content
    try:
        return _Document(content, path)
    except ModelFileError as error:
        return error


def _tried(*documents: _Document | ModelFileError) -> list[_Document | ModelFileError]:
    """The same, with an error in the place of a document that cannot be run within limits."""
    jobs = {id(d): job for d in documents if isinstance(d, _Document) and (job := job_of(d.json)) is not None}
    ended = dict(zip(jobs, tried(list(jobs.values())), strict=True))
    return [
        ModelFileError(STOPPED, where=d.path, fix="take the tokenizer.json that came with the model")
        if isinstance(d, _Document) and not ended.get(id(d), True)
        else d
        for d in documents
    ]


def _parsed(document: _Document | ModelFileError, like: Vocabulary | None) -> Vocabulary | ModelFileError:
    if isinstance(document, ModelFileError):
        return document
    try:
        return document.vocabulary(like)
    except ModelFileError as error:
        return error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def _moved(tokenizer: Tokenizer, ids: Mapping[str, int], added: Mapping[str, Any]) -> dict[str, int | None]:
    # The library takes base ids from the file as they are; only added tokens are renumbered.
    moved = {token: tokenizer.token_to_id(token) for token in added}
    moved = {token: i for token, i in moved.items() if i != ids[token]}
    if not moved and tokenizer.get_vocab_size(with_added_tokens=True) != len(ids):
        loaded = tokenizer.get_vocab(with_added_tokens=True)
        moved = {token: loaded.get(token) for token, i in ids.items() if loaded.get(token) != i}
    return moved


def _structure(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without its long lists; nothing of them is kept in memory."""
    kept = {key: value for key, value in document.items() if key not in ("model", "added_tokens")}
    return kept | {"model": {key: value for key, value in document["model"].items() if key not in _BULKY}}


def _merges(document: Mapping[str, Any]) -> list[str]:
    """Old files write "left right", newer ones [left, right]: one spelling, so that they compare."""
    merges = document["model"].get("merges")
    if not isinstance(merges, list):
        return []
    return [m if isinstance(m, str) else " ".join(map(str, m)) if isinstance(m, list) else "" for m in merges]


def _model_vocab(document: Mapping[str, Any], path: Path) -> dict[str, int]:
    model = Keys(document, path).block("model")
    vocab = None if model is None else model.data.get("vocab")
    if isinstance(vocab, list):  # Unigram: [piece, score] in the order of ids
        pieces = [p[0] if isinstance(p, list) and p and isinstance(p[0], str) else None for p in vocab]
        vocab = {piece: i for i, piece in enumerate(pieces)}
    if not isinstance(vocab, dict) or not _are_tokens(vocab):
        raise ModelFileError("model.vocab is not a map of tokens to ids", where=path)
    return dict(vocab)


def _added(document: Mapping[str, Any], path: Path) -> Iterator[tuple[str, tuple[int, dict[str, bool]]]]:
    added = document.get("added_tokens") or []
    if not isinstance(added, list):
        raise ModelFileError("added_tokens is not a list", where=path)
    for entry in added:
        if not isinstance(entry, dict) or not _is_token(entry.get("content"), entry.get("id")):
            raise ModelFileError("added_tokens holds something that is not a token", where=path, found=repr(entry)[:80])
        yield entry["content"], (entry["id"], {flag: entry.get(flag) is True for flag in FLAGS})


def _are_tokens(vocab: dict[Any, Any]) -> bool:
    # Whole-map operations: a vocabulary has a quarter of a million entries.
    if not set(map(type, vocab)) <= {str} or not set(map(type, vocab.values())) <= {int}:
        return False
    return not vocab or (min(vocab.values()) >= 0 and max(vocab.values()) < 1 << 32)


def _is_token(token: Any, i: Any) -> bool:
    return isinstance(token, str) and type(i) is int and 0 <= i < 1 << 32
