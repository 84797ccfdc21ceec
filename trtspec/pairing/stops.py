"""Which ids end an answer, and whether a model's own files agree on its begin, end and pad tokens.

The repository stops on the target's `eos_token_id` of generation_config.json, else of config.json (every id of a
list), and never looks at the draft's: the draft is asked for a fixed number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trtspec.checkpoint.jsonfile import Keys
from trtspec.errors import ModelFileError
from trtspec.pairing.conversations import ANSWER, FINISHED, TURNS
from trtspec.pairing.findings import Finding, error_finding
from trtspec.pairing.words import GENERATION_CONFIG, MODEL_CONFIG, SPECIAL_MAP, TOKENIZER_CONFIG, Words, text_of

KINDS = {"bos": "begin", "eos": "end", "pad": "pad"}
BEHIND = 64
"""Characters behind an answer that are looked at for the token that ends it."""
RUNS_ON = "add it to eos_token_id in generation_config.json"


@dataclass(frozen=True)
class SpecialIds:
    """Ids of one model per kind (bos, eos, pad) and the file that says so; only what was found."""

    said: Mapping[str, Mapping[str, tuple[int, ...]]]
    broken: tuple[ModelFileError, ...]
    unknown: tuple[tuple[str, str, str], ...]
    """Tokens that a file names and the vocabulary lacks: (kind, file, text)."""

    @classmethod
    def of(cls, words: Words) -> SpecialIds:
        """Gathered from all four files."""
        said: dict[str, dict[str, tuple[int, ...]]] = {kind: {} for kind in KINDS}
        broken: list[ModelFileError] = []
        unknown: list[tuple[str, str, str]] = []
        for kind in KINDS:
            for file, given in ((GENERATION_CONFIG, words.generation), (MODEL_CONFIG, words.model)):
                try:
                    ids = Keys(given, words.folder / file).ids(f"{kind}_token_id")
                except ModelFileError as error:
                    broken.append(error)
                    continue
                said[kind] |= {file: ids} if ids else {}
            for file, given in ((TOKENIZER_CONFIG, words.config), (SPECIAL_MAP, words.special_map)):
                text = text_of(given.get(f"{kind}_token"))
                i = words.id_of(text)
                said[kind] |= {file: (i,)} if i is not None else {}
                unknown += [(kind, file, text)] if text is not None and i is None and words.vocabulary else []
        return cls(said, tuple(broken), tuple(unknown))

    @property
    def stops(self) -> tuple[int, ...]:
        """Ids that generation stops on, the first file that names any decides; empty: it never stops."""
        return next((ids for ids in self.said["eos"].values()), ())

    @property
    def source(self) -> str | None:
        """The file that `stops` comes from."""
        return next(iter(self.said["eos"]), None)

    @property
    def configured(self) -> bool:
        """Whether a file that the build reads names the end ids, rather than the tokenizer's files only."""
        return self.source in (GENERATION_CONFIG, MODEL_CONFIG)


def check_stops(
    target: Words, draft: Words, rows: Mapping[str, int | None], *, comparable: bool = True
) -> Iterator[Finding]:
    """Each model's files in themselves, then where generation stops. `rows`: embedding rows by role, if known;
    `comparable`: one id means one token in both models."""
    ids = {words.role: SpecialIds.of(words) for words in (target, draft)}
    for words in (target, draft):
        yield from _broken(words, ids[words.role])
        yield from _unknown(words, ids[words.role], rows.get(words.role))
        yield from _disagreement(words, ids[words.role])
    yield from _target_stops(target, ids["target"])
    if comparable:
        yield from _pair(target, draft, ids["target"], ids["draft"])


def _broken(words: Words, ids: SpecialIds) -> Iterator[Finding]:
    for error in ids.broken:
        error.fix = "restore the file that came with the model"
        yield error_finding("stops.broken", words.role, error)


def _unknown(words: Words, ids: SpecialIds, rows: int | None) -> Iterator[Finding]:
    for kind, file, text in ids.unknown:
        yield Finding(
            "special.unknown", "warning", words.role,
            f"{file} names {text!r} as {KINDS[kind]} token, and the vocabulary has no such token: transformers would "
            "give it a new id",
            f"name a token that {words.folder.name}'s tokenizer.json has",
            {"kind": kind, "file": file, "token": text},
        )  # fmt: skip
    if words.vocabulary is None:
        return
    known = words.vocabulary.by_id
    for kind, files in ids.said.items():
        lost = {i: file for file, found in files.items() for i in found if i not in known}
        for i, file in lost.items():
            beyond = rows is not None and i >= rows
            yield Finding(
                "stops.unknown-id", "error" if beyond and words.role == "target" else "warning", words.role,
                f"{file} gives {i} as {KINDS[kind]} id, "
                + (f"beyond the {rows:,} rows of the model" if beyond else "and the vocabulary has no such id"),
                "restore the file that came with the model", {"kind": kind, "file": file, "id": i},
            )  # fmt: skip


def _disagreement(words: Words, ids: SpecialIds) -> Iterator[Finding]:
    """Files that say different things of one kind. The first one counts; a list agrees with a part of it."""
    for kind, files in ids.said.items():
        sets = [frozenset(found) for found in files.values()]
        if all(one <= sets[0] or sets[0] <= one for one in sets):
            continue
        told = "; ".join(f"{', '.join(map(words.name_of, found))} in {file}" for file, found in files.items())
        serious = kind == "eos" and words.role == "target"
        yield Finding(
            "special.disagree", "warning" if serious else "info", words.role,
            f"its files name different {KINDS[kind]} tokens: {told}"
            + (f"; generation stops on those of {ids.source}" if serious else ""),
            f"see that eos_token_id of {ids.source} has every id that is to end an answer" if serious else None,
            {"kind": kind} | {file: list(found) for file, found in files.items()},
        )  # fmt: skip


def _target_stops(target: Words, ids: SpecialIds) -> Iterator[Finding]:
    stops = ids.stops
    files_here = bool(target.generation or target.model)
    if not ids.configured and files_here:
        yield Finding(
            "stops.none", "warning", "target",
            "neither generation_config.json nor config.json names an end id: answers run to max_tokens",
            _name_it(target, stops), {"tokenizer": list(stops)},
        )  # fmt: skip
    elif not stops:
        message = "no file here says which ids end an answer"
        yield Finding("stops.not-measured", "info", "target", message, brief="end ids unknown")
    else:
        told = ", ".join(map(target.name_of, stops))
        message = f"generation stops on {told} ({ids.source})"
        data = {"ids": list(stops), "source": ids.source}
        yield Finding("stops.set", "info", "target", message, None, data, f"stops on {', '.join(map(str, stops))}")
    yield from _turn_end(target, stops)
    yield from _pad(target, ids)


def _name_it(target: Words, stops: tuple[int, ...]) -> str:
    turn = turn_end(target)
    ids = sorted({*stops, *(() if turn is None else (turn,))})
    return f"set eos_token_id in generation_config.json{f' to {ids}' if ids else ''}"


def _turn_end(target: Words, stops: tuple[int, ...]) -> Iterator[Finding]:
    turn = turn_end(target)
    if turn is not None and stops and turn not in stops:
        yield Finding(
            "stops.turn-end", "warning", "target",
            f"its chat template ends an answer with {target.name_of(turn)}, and generation does not stop on it: "
            "answers run on",
            RUNS_ON, {"id": turn, "stops": list(stops)},
        )  # fmt: skip


def turn_end(words: Words) -> int | None:
    """The special token that the template prints behind an assistant's text, the sign that an answer is over."""
    for conversation in (FINISHED, TURNS):
        text = words.text(conversation)
        if text is None or words.vocabulary is None or ANSWER not in text:
            continue
        behind = words.vocabulary.encode(text[text.rindex(ANSWER) + len(ANSWER) :][:BEHIND])
        if behind and words.vocabulary.by_id.get(behind[0]) in words.vocabulary.added:
            return behind[0]
    return None


def _pad(target: Words, ids: SpecialIds) -> Iterator[Finding]:
    pads = {i for found in ids.said["pad"].values() for i in found} & set(ids.stops)
    if pads:
        told = ", ".join(map(target.name_of, sorted(pads)))
        message = f"pad is an end token too ({told}); harmless here, but it must be masked when the model is trained"
        yield Finding("special.pad", "info", "target", message, None, {"ids": sorted(pads)}, "pad is an end token")


def _pair(target: Words, draft: Words, ours: SpecialIds, theirs: SpecialIds) -> Iterator[Finding]:
    one, other = set(ours.stops), set(theirs.stops)
    if not one or not other or one == other:
        return
    apart = not one & other
    told = (", ".join(words.name_of(i) for i in sorted(ids)) for words, ids in ((target, one), (draft, other)))
    message = "the target stops on {} and the draft on {}: ".format(*told)
    message += "the end of every answer is a rejected guess" if apart else "only the target's count"
    fix = "prefer a draft of the same kind (base or instruct) as the target" if apart else None
    data: dict[str, Any] = {"target": sorted(one), "draft": sorted(other)}
    yield Finding("stops.differ", "warning" if apart else "info", "pair", message, fix, data)
