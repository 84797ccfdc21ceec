"""Do the two tokenizers mean the same string by every id? Compared token by token; sizes prove nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from trtspec.checkpoint.jsonfile import Keys, parse_object, read_bytes
from trtspec.errors import ModelFileError
from trtspec.pairing.findings import Finding

FILE = "tokenizer.json"
LIMIT = 512 << 20
SHOWN = 10
"""Differing ids listed in a finding's data."""
WRITE_IT = "write it with AutoTokenizer.from_pretrained(...).save_pretrained(...)"


@dataclass(frozen=True)
class Vocabulary:
    """Base and added tokens of one model as its file declares them."""

    ids: Mapping[str, int]
    special: frozenset[str]
    """Added tokens marked special: control tokens, not text."""
    loaded: Mapping[str, int]
    """The same map as the tokenizers library loads it, which is what a server uses."""
    by_id: Mapping[int, str]
    shared: Mapping[int, str]
    """Ids with a second token, and that token."""

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Vocabulary:
        """Read both ways; ModelFileError when either refuses the file."""
        document = parse_object(data, path)
        added = list(_added(document, path))
        ids = _model_vocab(document, path) | {token: i for token, i, _ in added}
        if not ids:
            raise ModelFileError("has no tokens", where=path)
        by_id: dict[int, str] = {}
        shared = {i: token for token, i in ids.items() if by_id.setdefault(i, token) != token}
        special = frozenset(token for token, _, special in added if special)
        return cls(ids, special, _load(data, path), by_id, shared)

    @property
    def last_id(self) -> int:
        """The largest id."""
        return max(self.by_id)

    def is_special(self, i: int) -> bool:
        """Whether the id belongs to a special token."""
        return self.by_id[i] in self.special


def read_vocabularies(target: Path, draft: Path) -> tuple[Vocabulary | ModelFileError, Vocabulary | ModelFileError]:
    """Both folders' vocabularies, or why there is none; equal files are parsed once."""
    contents = [_content(folder / FILE) for folder in (target, draft)]
    first = _parsed(contents[0], target / FILE)
    if isinstance(first, Vocabulary) and contents[0] == contents[1]:
        return first, first
    return first, _parsed(contents[1], draft / FILE)


def _content(path: Path) -> bytes | ModelFileError:
    try:
        return read_bytes(path, limit=LIMIT, fix=WRITE_IT)
    except ModelFileError as error:
        return error


def _parsed(content: bytes | ModelFileError, path: Path) -> Vocabulary | ModelFileError:
    if isinstance(content, ModelFileError):
        return content
    try:
        return Vocabulary.parse(content, path)
    except ModelFileError as error:
        return error


def _load(data: bytes, path: Path) -> dict[str, int]:
    try:
        loaded: dict[str, int] = Tokenizer.from_buffer(data).get_vocab(with_added_tokens=True)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in the library is not an Exception
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelFileError(f"the tokenizers library refuses it: {first[:160]}", where=path) from None
    return loaded


def _model_vocab(document: Mapping[str, Any], path: Path) -> dict[str, int]:
    model = Keys(document, path).block("model")
    vocab = None if model is None else model.data.get("vocab")
    if isinstance(vocab, list):  # Unigram: [piece, score] in the order of ids
        pieces = [p[0] if isinstance(p, list) and p and isinstance(p[0], str) else None for p in vocab]
        vocab = {piece: i for i, piece in enumerate(pieces)}
    if not isinstance(vocab, dict) or not _are_tokens(vocab):
        raise ModelFileError("model.vocab is not a map of tokens to ids", where=path)
    return dict(vocab)


def _added(document: Mapping[str, Any], path: Path) -> Iterator[tuple[str, int, bool]]:
    added = document.get("added_tokens") or []
    if not isinstance(added, list):
        raise ModelFileError("added_tokens is not a list", where=path)
    for entry in added:
        if not isinstance(entry, dict) or not _is_token(entry.get("content"), entry.get("id")):
            raise ModelFileError("added_tokens holds something that is not a token", where=path, found=repr(entry)[:80])
        yield entry["content"], entry["id"], entry.get("special") is True


def _are_tokens(vocab: dict[Any, Any]) -> bool:
    # Whole-map operations: a vocabulary has a quarter of a million entries.
    if not set(map(type, vocab)) <= {str} or not set(map(type, vocab.values())) <= {int}:
        return False
    return not vocab or (min(vocab.values()) >= 0 and max(vocab.values()) < 1 << 32)


def _is_token(token: Any, i: Any) -> bool:
    return isinstance(token, str) and type(i) is int and 0 <= i < 1 << 32


def compare(target: Vocabulary, draft: Vocabulary) -> list[Finding]:
    """Findings about the pair: ids whose strings differ, ids only one has, overlap."""
    both = target.by_id.keys() & draft.by_id.keys()
    differing = sorted(i for i in both if target.by_id[i] != draft.by_id[i])
    renamed = [i for i in differing if target.is_special(i) and draft.is_special(i)]
    clashing = sorted(set(differing) - set(renamed))
    draft_only = sorted(draft.by_id.keys() - both)
    target_only = sorted(target.by_id.keys() - both)
    facts = {"overlap": (len(both) - len(differing)) / len(target.by_id), "target": len(target.by_id),
             "draft": len(draft.by_id)}  # fmt: skip
    found = [
        *_clashes(clashing, target, draft, facts),
        *_renamed(renamed, target, draft, facts),
        *_draft_only(draft_only, draft, facts),
        *_target_only(target_only, target, facts),
    ]
    if not found:
        found = [
            Finding("vocab.equal", "info", "pair", f"all {len(both):,} token ids mean the same string", data=facts)
        ]
    return found


def _strings(ids: list[int], *models: tuple[str, Vocabulary]) -> list[dict[str, Any]]:
    return [{"id": i} | {role: vocabulary.by_id[i] for role, vocabulary in models} for i in ids[:SHOWN]]


def _clashes(ids: list[int], target: Vocabulary, draft: Vocabulary, facts: dict[str, Any]) -> Iterator[Finding]:
    if ids:
        i = ids[0]
        yield Finding(
            "vocab.ids-differ", "error", "pair",
            f"{len(ids):,} of {facts['target']:,} ids mean different strings: id {i} is {target.by_id[i]!r} to the "
            f"target and {draft.by_id[i]!r} to the draft (overlap {facts['overlap']:.1%})",
            "choose a draft that was trained with the target's tokenizer",
            facts | {"count": len(ids), "first": _strings(ids, ("target", target), ("draft", draft))},
        )  # fmt: skip


def _renamed(ids: list[int], target: Vocabulary, draft: Vocabulary, facts: dict[str, Any]) -> Iterator[Finding]:
    if ids:
        i = ids[0]
        yield Finding(
            "vocab.special-renamed", "warning", "pair",
            f"{len(ids):,} special tokens have other names: id {i} is {target.by_id[i]!r} to the target and "
            f"{draft.by_id[i]!r} to the draft",
            "use the target's chat template for both, and see that the stop tokens are not among them",
            facts | {"count": len(ids), "first": _strings(ids, ("target", target), ("draft", draft))},
        )  # fmt: skip


def _draft_only(ids: list[int], draft: Vocabulary, facts: dict[str, Any]) -> Iterator[Finding]:
    if ids:
        yield Finding(
            "vocab.draft-only", "error", "pair",
            f"the draft has {len(ids):,} ids that the target lacks, the first {ids[0]} ({draft.by_id[ids[0]]!r})",
            "choose a draft with the target's tokenizer; it must never propose an id that the target cannot read",
            facts | {"count": len(ids), "first": _strings(ids, ("draft", draft))},
        )  # fmt: skip


def _target_only(ids: list[int], target: Vocabulary, facts: dict[str, Any]) -> Iterator[Finding]:
    if ids:
        share = len(ids) / facts["target"]
        yield Finding(
            "vocab.target-only", "warning", "pair",
            f"the target has {len(ids):,} ids ({100 * share:.2g}%) that the draft lacks, the first {ids[0]} "
            f"({target.by_id[ids[0]]!r}); the draft can never propose them",
            "see that text of your domain does not need them",
            facts | {"count": len(ids), "share": share, "first": _strings(ids, ("target", target))},
        )  # fmt: skip


def examine(role: str, vocabulary: Vocabulary) -> list[Finding]:
    """Findings about one tokenizer: shifted on loading, ids used twice, holes."""
    found = []
    moved = []
    if vocabulary.loaded != vocabulary.ids:
        moved = sorted((i, token) for token, i in vocabulary.ids.items() if vocabulary.loaded.get(token) != i)
    if moved:
        i, token = moved[0]
        found.append(Finding(
            "tokenizer.ids-shifted", "error", role,
            f"{len(moved):,} tokens get another id on loading: {token!r} is {i} in the file and "
            f"{vocabulary.loaded.get(token)} to the server",
            "fill the gaps before the added tokens with placeholder tokens",
            {"count": len(moved), "first": [{"id": n, "token": t} for n, t in moved[:SHOWN]]},
        ))  # fmt: skip
    if vocabulary.shared:
        i, token = next(iter(vocabulary.shared.items()))
        found.append(Finding(
            "tokenizer.ids-shared", "error", role,
            f"id {i} belongs both to {vocabulary.by_id[i]!r} and to {token!r}", "give every token its own id",
            {"count": len(vocabulary.shared)},
        ))  # fmt: skip
    holes = vocabulary.last_id + 1 - len(vocabulary.by_id)
    if holes:
        message = f"{holes:,} ids below {vocabulary.last_id} belong to no token"
        found.append(Finding("vocab.holes", "info", role, message, data={"count": holes}))
    return found
