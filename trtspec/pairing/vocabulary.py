"""Do the two tokenizers mean the same string by every id? Compared token by token; sizes prove nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trtspec.pairing.findings import Finding
from trtspec.pairing.tokenizer import Vocabulary

SHOWN = 10
"""Differing ids listed in a finding's data."""


@dataclass(frozen=True)
class Differences:
    """What one comparison of two id maps found; every list is in order of ids."""

    clashing: Sequence[int]
    """One id, two strings, and at least one of them is text."""
    renamed: Sequence[int]
    """One id, two names, both of special tokens."""
    draft_only: Sequence[int]
    target_only: Sequence[int]
    same: int
    """Ids that mean one string in both."""

    @classmethod
    def of(cls, target: Vocabulary, draft: Vocabulary) -> Differences:
        """Compare both maps."""
        if target.by_id == draft.by_id:
            return cls((), (), (), (), len(target.by_id))
        both = target.by_id.keys() & draft.by_id.keys()
        differing = sorted(i for i in both if target.by_id[i] != draft.by_id[i])
        renamed = [i for i in differing if target.is_special(i) and draft.is_special(i)]
        clashing = sorted(set(differing) - set(renamed))
        draft_only, target_only = (sorted(v.by_id.keys() - both) for v in (draft, target))
        return cls(clashing, renamed, draft_only, target_only, len(both) - len(differing))

    @property
    def comparable(self) -> bool:
        """Whether ids mean the same so far that the way to them, segmentation, is worth comparing."""
        return not self.clashing


def compare(target: Vocabulary, draft: Vocabulary, found: Differences) -> Iterator[Finding]:
    """Findings about text tokens and about ids that only one model has; renamed control tokens are graded elsewhere."""
    facts = _facts(target, draft, found)
    yield from _clashes(found.clashing, target, draft, facts)
    yield from _draft_only(found.draft_only, draft, facts)
    yield from _target_only(found.target_only, target, facts)
    # Where two tokens share an id, equal strings per id do not make equal maps.
    if found.same == len(target.by_id) and not found.draft_only and target.ids == draft.ids:
        message = f"all {found.same:,} token ids ({_parts(target)}) mean the same string"
        yield Finding("vocab.equal", "info", "pair", message, None, facts, f"{found.same:,} equal ids")


def _facts(target: Vocabulary, draft: Vocabulary, found: Differences) -> dict[str, Any]:
    facts: dict[str, Any] = {"overlap": found.same / len(target.by_id)}
    for role, vocabulary in (("target", target), ("draft", draft)):
        tokens = len(vocabulary.by_id)
        facts |= {role: tokens, f"{role}_base": vocabulary.base, f"{role}_added": len(vocabulary.added)}
    return facts


def _parts(vocabulary: Vocabulary) -> str:
    on_top = len(vocabulary.by_id) - vocabulary.base
    return f"{vocabulary.base:,} base and {on_top:,} added" if on_top > 0 else f"{vocabulary.base:,} base"


def strings(ids: Sequence[int], **models: Vocabulary) -> list[dict[str, Any]]:
    """The first few ids with what each model means by them, for a finding's data."""
    return [{"id": i} | {role: vocabulary.by_id.get(i) for role, vocabulary in models.items()} for i in ids[:SHOWN]]


def _clashes(ids: Sequence[int], target: Vocabulary, draft: Vocabulary, facts: dict[str, Any]) -> Iterator[Finding]:
    if ids:
        i = ids[0]
        yield Finding(
            "vocab.ids-differ", "error", "pair",
            f"{len(ids):,} of {facts['target']:,} ids mean different strings: id {i} is {target.by_id[i]!r} to the "
            f"target and {draft.by_id[i]!r} to the draft (overlap {facts['overlap']:.1%})",
            "choose a draft that was trained with the target's tokenizer",
            facts | {"count": len(ids), "first": strings(ids, target=target, draft=draft)},
        )  # fmt: skip


def _draft_only(ids: Sequence[int], draft: Vocabulary, facts: dict[str, Any]) -> Iterator[Finding]:
    if ids:
        yield Finding(
            "vocab.draft-only", "error", "pair",
            f"the draft has {len(ids):,} ids that the target lacks, the first {ids[0]} ({draft.by_id[ids[0]]!r})",
            "choose a draft with the target's tokenizer; it must never propose an id that the target cannot read",
            facts | {"count": len(ids), "first": strings(ids, draft=draft)},
        )  # fmt: skip


def _target_only(ids: Sequence[int], target: Vocabulary, facts: dict[str, Any]) -> Iterator[Finding]:
    if ids:
        share = len(ids) / facts["target"]
        yield Finding(
            "vocab.target-only", "warning", "pair",
            f"the target has {len(ids):,} ids ({100 * share:.2g}%) that the draft lacks, the first {ids[0]} "
            f"({target.by_id[ids[0]]!r}); the draft can never propose them",
            "see that text of your domain does not need them",
            facts | {"count": len(ids), "share": share, "first": strings(ids, target=target)},
        )  # fmt: skip


def examine(role: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Findings about one tokenizer: shifted on loading, ids used twice, holes."""
    yield from _shifted(role, vocabulary)
    if vocabulary.shared:
        i, token = next(iter(vocabulary.shared.items()))
        message = f"id {i} belongs both to {vocabulary.by_id[i]!r} and to {token!r}"
        data = {"count": len(vocabulary.shared)}
        yield Finding("tokenizer.ids-shared", "error", role, message, "give every token its own id", data)
    holes = vocabulary.last_id + 1 - len(vocabulary.by_id)
    if holes:
        message = f"{holes:,} ids below {vocabulary.last_id} belong to no token"
        yield Finding("vocab.holes", "info", role, message, data={"count": holes, "last_id": vocabulary.last_id})


def _shifted(role: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    moved = sorted((vocabulary.ids[token], token, now) for token, now in vocabulary.moved.items())
    if moved:
        i, token, now = moved[0]
        yield Finding(
            "tokenizer.ids-shifted", "error", role,
            f"{len(moved):,} tokens get another id on loading: {token!r} is {i} in the file and {now} to the server",
            "fill the gaps before the added tokens with placeholder tokens",
            {"count": len(moved), "first": [{"id": n, "token": t, "loaded": got} for n, t, got in moved[:SHOWN]]},
        )  # fmt: skip
