"""Added tokens that are renamed, missing or flagged otherwise in the draft, graded by what the target does with them.

A request's prompt is made once, by the target's tokenizer and template, and both models read its ids. So a slot that
neither prints nor stops anything costs nothing whatever it is called; a token of the template that the draft never saw
costs guesses at every turn; and one that the draft has no row for cannot even be read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trtspec.pairing.findings import Finding
from trtspec.pairing.stops import SpecialIds, turn_end
from trtspec.pairing.vocabulary import SHOWN, Differences
from trtspec.pairing.words import TOKENIZER_CONFIG, Words, text_of

RESERVED = re.compile(
    r"reserved|unused|place.?holder|dummy|<SPECIAL_\d+>|\[control_\d+\]|extra_(id_)?\d+|\[PAD\d*\]", re.IGNORECASE
)
"""Names that makers give to slots kept free: Llama 3, Gemma, DeepSeek, Phi, Mistral, Qwen 1, GGUF conversions."""
GRADES = ("stop", "template", "unknown", "reserved", "unused")
"""From what matters most; `unknown` where the target has no template and no end ids to judge by."""
_TOLD = {
    "stop": "end an answer", "template": "are printed by the chat template", "unknown": "may be in use",
    "reserved": "are reserved slots", "unused": "are used by nothing here",
}  # fmt: skip
MATTERS = ("stop", "template", "unknown")


@dataclass(frozen=True)
class Use:
    """What the target does with special tokens."""

    stops: frozenset[int]
    printed: frozenset[int]
    known: bool

    @classmethod
    def of(cls, words: Words) -> Use:
        """From its end ids and its template: what it printed on the samples and the names in its source."""
        stops = frozenset(SpecialIds.of(words).stops)
        turn = turn_end(words)
        return cls(stops, frozenset(_printed(words)) | ({turn} if turn is not None else set()),
                   bool(stops) or words.template is not None)  # fmt: skip

    def grade(self, i: int, *names: str) -> str:
        """One of GRADES for the id, which the models call `names`."""
        if i in self.stops:
            return "stop"
        if i in self.printed:
            return "template"
        if any(RESERVED.search(name) for name in names):
            return "reserved"
        return "unused" if self.known else "unknown"


def _printed(words: Words) -> Iterator[int]:
    vocabulary = words.vocabulary
    if vocabulary is None or words.template is None:
        return
    texts = [*words.template.sources.values(), *(r["text"] for r in words.rendered or () if "text" in r)]
    for token in vocabulary.added:
        if token and any(token in text for text in texts):
            yield vocabulary.ids[token]


def check_special(
    target: Words, draft: Words, found: Differences, rows: Mapping[str, int | None], *, own: bool = True
) -> Iterator[Finding]:
    """The pair's added tokens, then each model in itself. `rows`: embedding rows by role, where known; `own`: prompts
    are made by the repository's preprocessing."""
    if target.vocabulary is None or draft.vocabulary is None:
        return
    if found.comparable:
        use = Use.of(target)
        yield from _renamed(target, draft, found.renamed, use)
        yield from _missing(target, found.target_only, use, rows.get("draft"))
        yield from _reflagged(target, draft, use)
    for words in (target, draft):
        yield from _declared_twice(words)
        yield from _double_bos(words, own)


def _renamed(target: Words, draft: Words, ids: Sequence[int], use: Use) -> Iterator[Finding]:
    if not ids or target.vocabulary is None or draft.vocabulary is None:
        return
    one, other = target.vocabulary.by_id, draft.vocabulary.by_id
    graded = {i: use.grade(i, one[i], other[i]) for i in ids}
    i = _worst(graded)[0]
    matters = graded[i] in MATTERS
    yield Finding(
        "vocab.special-renamed", "warning" if matters else "info", "pair",
        f"{len(ids):,} special tokens have other names, {_summary(graded)}: id {i} is {one[i]!r} to the target and "
        f"{other[i]!r} to the draft",
        "the draft never learned these tokens as the target uses them: measure acceptance on chat prompts"
        if matters else None,
        _data(graded, lambda i: {"target": one[i], "draft": other[i]}),
    )  # fmt: skip


def _missing(target: Words, ids: Sequence[int], use: Use, rows: int | None) -> Iterator[Finding]:
    assert target.vocabulary is not None
    by_id, added = target.vocabulary.by_id, target.vocabulary.added
    graded = {i: grade for i in ids if by_id[i] in added and (grade := use.grade(i, by_id[i])) in ("stop", "template")}
    if not graded:
        return
    # An end token is only read again as part of a longer chat; what the template prints is in every prompt.
    unreadable = [i for i in graded if i in use.printed and rows is not None and i >= rows]
    i = unreadable[0] if unreadable else _worst(graded)[0]
    tail = f"and the draft's embedding ends at row {rows:,}" if unreadable else "the draft has no such token"
    yield Finding(
        "special.missing", "error" if unreadable else "warning", "pair",
        f"{len(graded):,} tokens that the draft lacks {_verb(graded)}: id {target.name_of(i)}, {tail}",
        "choose a draft with the target's special tokens" if unreadable else
        "the draft can neither learn nor propose them: measure acceptance on chat prompts",
        _data(graded, lambda i: {"target": by_id[i]}),
    )  # fmt: skip


def _reflagged(target: Words, draft: Words, use: Use) -> Iterator[Finding]:
    assert target.vocabulary is not None
    assert draft.vocabulary is not None
    changed: dict[int, tuple[Mapping[str, bool] | None, Mapping[str, bool] | None]] = {}
    one, other = target.vocabulary, draft.vocabulary
    for token in sorted(one.added.keys() | other.added.keys(), key=lambda token: one.ids.get(token, -1)):
        flags = (one.added.get(token), other.added.get(token))
        if flags[0] != flags[1] and token in one.ids and one.ids[token] == other.ids.get(token):
            changed[one.ids[token]] = flags
    if not changed:
        return
    graded = {i: use.grade(i, one.by_id[i]) for i in changed}
    i = _worst(graded)[0]
    matters = graded[i] in MATTERS[:2]
    yield Finding(
        "special.reflagged", "warning" if matters else "info", "pair",
        f"{len(changed):,} added tokens are declared otherwise, {_summary(graded)}: id {target.name_of(i)} is "
        f"{_flags(changed[i][0])} to the target and {_flags(changed[i][1])} to the draft",
        "the target's flags count; the draft saw text around these tokens cut otherwise" if matters else None,
        _data(graded, lambda i: {"target": changed[i][0], "draft": changed[i][1]}),
    )  # fmt: skip


def _flags(flags: Mapping[str, bool] | None) -> str:
    if flags is None:
        return "a base token"
    return "+".join(flag for flag, on in flags.items() if on) or "added without flags"


def _worst(graded: Mapping[int, str]) -> list[int]:
    return sorted(graded, key=lambda i: (GRADES.index(graded[i]), i))


def _summary(graded: Mapping[int, str]) -> str:
    counts = Counter(graded.values())
    return ", ".join(f"{counts[grade]:,} {_TOLD[grade]}" for grade in GRADES if counts[grade])


def _verb(graded: Mapping[int, str]) -> str:
    counts = Counter(graded.values())
    return " or ".join(_TOLD[grade] for grade in GRADES if counts[grade])


def _data(graded: Mapping[int, str], more: Any) -> dict[str, Any]:
    worst = _worst(graded)
    first = [{"id": i, "grade": graded[i]} | more(i) for i in worst[:SHOWN]]
    return {"count": len(graded), "grades": dict(Counter(graded.values())), "first": first}


def _declared_twice(words: Words) -> Iterator[Finding]:
    """tokenizer_config.json repeats the added tokens; where it differs, transformers adds tokens of its own."""
    assert words.vocabulary is not None
    table = words.config.get("added_tokens_decoder")
    if not isinstance(table, dict):
        return
    wrong = [(key, text) for key, entry in table.items() if (text := text_of(entry)) is not None
             and (not key.isdecimal() or words.vocabulary.by_id.get(int(key[:12])) != text)]  # fmt: skip
    if wrong:
        key, text = wrong[0]
        found = words.vocabulary.by_id.get(int(key[:12])) if key.isdecimal() else None
        yield Finding(
            "special.disagree", "warning" if words.role == "target" else "info", words.role,
            f"{TOKENIZER_CONFIG} says that id {key} is {text!r}, tokenizer.json says {found!r} ({len(wrong):,} such)",
            "restore the two files that came with the model; the server reads tokenizer.json",
            {"kind": "added", "count": len(wrong), "first": [{"id": k, "token": t} for k, t in wrong[:SHOWN]]},
        )  # fmt: skip


def _double_bos(words: Words, own: bool) -> Iterator[Finding]:
    """The template prints the begin token, and the post-processor puts one in front again."""
    before = words.around()[0]
    if words.role != "target" or not before or not printed_in_front(words, before):
        return
    told = " ".join(map(words.name_of, before))
    message = f"its chat template prints the begin token {told}, and its tokenizer adds it again: "
    once = "encode rendered prompts with add_special_tokens=False"
    data = {"ids": before}
    if own:
        message += f"the repository's preprocessing drops the second one (other clients must {once})"
        yield Finding("special.double-bos", "info", "target", message, None, data, "a second begin token is dropped")
    else:
        yield Finding("special.double-bos", "warning", "target", f"{message}every chat prompt gets two", once, data)


def printed_in_front(words: Words, ids: Iterable[int]) -> bool:
    """Whether the template itself begins every prompt with these tokens."""
    if words.vocabulary is None:
        return False
    head = "".join(words.vocabulary.by_id.get(i, "") for i in ids)
    texts = [text for n in range(len(words.rendered or ())) if (text := words.text(n)) is not None]
    return bool(head) and bool(texts) and all(text.startswith(head) for text in texts)
