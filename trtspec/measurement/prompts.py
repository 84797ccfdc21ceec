"""Prompts: what is asked, from files of several forms.

    {"id": "code-1", "prompt": "def f(", "max_tokens": 64}
    {"id": "chat-1", "messages": [{"role": "user", "content": "Hello"}], "domain": "chat", "reference": "Hi."}

`prompt`, `messages` or (ShareGPT) `conversations` is needed. `id` defaults to the line's number, `max_tokens` to the
configuration's; `domain`, where given, must be the dataset's, unless the dataset says which key names the domain.
Other keys belong to whoever wrote them.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trtspec.config.validation import Dataset, Validation
from trtspec.errors import ConfigError
from trtspec.measurement.chat import ChatTemplate
from trtspec.measurement.promptrows import Row, conversation, rows_of, usable


@dataclass(frozen=True)
class Prompt:
    """One prompt as text, with the longest answer asked for in tokens."""

    id: str
    domain: str
    text: str
    max_tokens: int
    reference: str | None = None
    """The right answer, for who wants to compare."""
    ignore_eos: bool = False


@dataclass(frozen=True)
class PromptSet:
    """The prompts of one domain and where they came from."""

    domain: str
    file: str
    sha256: str
    prompts: tuple[Prompt, ...]
    """Those to be asked: without repetitions, `limit` of them drawn."""
    available: int
    """Prompts in the file."""
    duplicates: int
    """Prompts of the file that repeat an earlier one; left out."""
    skipped: int
    """Entries without a question; left out."""
    synthetic: bool


def load_all(validation: Validation, chat: ChatTemplate | None) -> list[Prompt]:
    """The prompts of every dataset of the configuration, domain after domain."""
    return [prompt for each in load_sets(validation, chat) for prompt in each.prompts]


def load_sets(validation: Validation, chat: ChatTemplate | None) -> list[PromptSet]:
    """The same with the facts of each set; ConfigError where there is nothing, or a domain comes from two files."""
    if not validation.datasets:
        fix = "name a file of prompts under validation.datasets (`profile` also takes --dataset FILE:DOMAIN)"
        raise ConfigError("there are no prompts: nothing to validate with", fix=fix)
    sets: dict[str, PromptSet] = {}
    for dataset in validation.datasets:
        for found in read_sets(dataset, chat, validation.seed, validation.max_tokens):
            if found.domain in sets:
                raise ConfigError(
                    f"the domain {found.domain!r} comes from two datasets",
                    where=dataset.path,
                    found=f"also in {sets[found.domain].file}",
                )
            sets[found.domain] = found
    return list(sets.values())


def load_prompts(dataset: Dataset, chat: ChatTemplate | None, seed: int, default_max_tokens: int) -> list[Prompt]:
    """The dataset's prompts in file order; `limit` of each domain drawn with the seed. ConfigError with file:line."""
    return [p for each in read_sets(dataset, chat, seed, default_max_tokens) for p in each.prompts]


def read_sets(dataset: Dataset, chat: ChatTemplate | None, seed: int, default_max_tokens: int) -> tuple[PromptSet, ...]:
    """One set for each domain of the file. A prompt that was there before is left out: it measures a cache."""
    data = _read(dataset)
    prompts, skipped = _parse(dataset, chat, data.decode("utf-8-sig"), default_max_tokens)
    if not prompts:
        expected = "a JSON object on each line"
        raise ConfigError("the file holds no prompts", where=dataset.path, expected=expected)
    sets = []
    for domain in dict.fromkeys(p.domain for p in prompts):
        own = [p for p in prompts if p.domain == domain]
        first: dict[tuple[str, int], Prompt] = {}
        for prompt in own:
            first.setdefault((prompt.text, prompt.max_tokens), prompt)
        distinct = list(first.values())
        sets.append(
            PromptSet(
                domain=domain,
                file=dataset.path.name,
                sha256=hashlib.sha256(data).hexdigest(),
                prompts=tuple(_drawn(distinct, dataset.limit, f"{seed}:{domain}")),
                available=len(own),
                duplicates=len(own) - len(distinct),
                skipped=skipped,
                synthetic=dataset.synthetic,
            )
        )
    return tuple(sets)


def _parse(dataset: Dataset, chat: ChatTemplate | None, text: str, default_max_tokens: int) -> tuple[list[Prompt], int]:
    """Every prompt of the file in order, and how many entries had no question."""
    prompts: list[Prompt] = []
    skipped = 0
    seen: dict[tuple[str, str], str] = {}
    names: dict[str, str] = {}
    for row in rows_of(dataset, text):
        if not usable(row):
            skipped += 1
            continue
        prompt = _Reader(dataset, row, chat).prompt(default_max_tokens)
        _require_apart(names, prompt.domain, row, dataset.domain_key)
        if (prompt.domain, prompt.id) in seen:
            found = f"first at {_place(seen[prompt.domain, prompt.id])}"
            raise row.fault(f"the id {prompt.id!r} is given twice", found)
        seen[prompt.domain, prompt.id] = row.where
        prompts.append(prompt)
    return prompts, skipped


def _require_apart(names: dict[str, str], domain: str, row: Row, key: str | None) -> None:
    """Domains that the file tells apart (`c++`, `c#`) must not become one because a name has few letters to use."""
    given = row.data.get(key) if key is not None else None
    if not isinstance(given, str):
        return
    first = names.setdefault(domain, given)
    if first != given:
        fix = f"write letters, digits, `.`, `_` or `-` in `{key}`"
        raise row.fault(f"two domains get the name {domain!r}", f"{first!r} and {given!r}", fix)


def _place(where: str) -> str:
    number = re.search(r"(\d+)$", where)
    return f"line {number[1]}" if number and ", entry" not in where else where


def _read(dataset: Dataset) -> bytes:
    try:
        data = dataset.path.read_bytes()
        data.decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"no such prompts file for the domain {dataset.domain!r}", where=dataset.path) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError("the prompts file is not UTF-8", where=f"{dataset.path}:{line}") from None
    except OSError as error:
        raise ConfigError(f"cannot read the prompts: {error.strerror}", where=dataset.path) from None
    return data


def _drawn(prompts: list[Prompt], limit: int | None, seed: str) -> list[Prompt]:
    if limit is None or limit >= len(prompts):
        return prompts
    # Not for secrets. The domain is part of the seed, so that adding a dataset does not change another's draw.
    chosen = random.Random(seed).sample(range(len(prompts)), limit)  # noqa: S311
    return [prompts[i] for i in sorted(chosen)]


def shuffled(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    """In a seeded random order within each domain: whoever stops early must not have seen a sorted file's beginning."""
    order = list(prompts)
    places: dict[str, list[int]] = {}
    for i, prompt in enumerate(order):
        places.setdefault(prompt.domain, []).append(i)
    for domain, own in places.items():
        drawn = random.Random(f"{seed}:{domain}:order").sample(own, len(own))  # noqa: S311 (not for secrets)
        for place, source in zip(own, drawn, strict=True):
            order[place] = prompts[source]
    return order


@dataclass(frozen=True)
class _Reader:
    """One row of a dataset as a prompt."""

    dataset: Dataset
    row: Row
    chat: ChatTemplate | None

    def prompt(self, default_max_tokens: int) -> Prompt:
        data, row = self.row.data, self.row
        name = data.get("id", f"{self.dataset.path.stem}:{row.number}")
        name = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
        if not isinstance(name, str) or not name:
            raise row.fault("`id` is a text, not empty", repr(name))
        tokens = data.get("max_tokens", default_max_tokens)
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            raise row.fault("`max_tokens` is a whole number from 1", repr(tokens))
        text, answer = self._text()
        given = data.get(self.dataset.reference_key or "reference", answer)
        if isinstance(given, list) and given:  # one for each turn (MT-Bench): the first turn is asked
            given = given[0]
        if given is not None and not isinstance(given, str):
            raise row.fault("a reference answer is a text", repr(given))
        ignore = data.get("ignore_eos", False)
        if not isinstance(ignore, bool):
            raise row.fault("`ignore_eos` is true or false", repr(ignore))
        return replace(Prompt(name, self._domain(), text, tokens), reference=given, ignore_eos=ignore)

    def _domain(self) -> str:
        key = self.dataset.domain_key
        found = self.row.data.get(key or "domain", self.dataset.domain)
        if key is not None and isinstance(found, str):
            return _name(found, self.row)
        if found != self.dataset.domain:
            what = f"the dataset's domain is {self.dataset.domain!r}, the prompt's `{key or 'domain'}` another"
            raise self.row.fault(what, repr(found))
        return self.dataset.domain

    def _text(self) -> tuple[str, str | None]:
        """The prompt as text, and the answer that came with a conversation."""
        data, key = self.row.data, self.dataset.prompt_key or "prompt"
        given = [name for name in (key, "messages", "conversations") if name in data]
        if len(given) != 1:
            what = f"a prompt has exactly one of `{key}`, `messages` and `conversations`"
            raise self.row.fault(what, ", ".join(given or data) or "no keys")
        answer = None
        if given[0] == "conversations":
            messages, answer = conversation(self.row)
            text: object = self._rendered(messages)
        else:
            text = self._rendered(data["messages"]) if given[0] == "messages" else self._plain(data[key], key)
        if not isinstance(text, str) or not text:
            raise self.row.fault(f"`{key}` is a text, not empty", repr(text))
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise self.row.fault("the text holds half of a surrogate pair, which no encoding can send") from None
        return text, answer

    def _plain(self, value: object, key: str) -> object:
        """A text, or the first of a list of turns: what follows needs the model's own answers."""
        first = value[0] if isinstance(value, list) and value else value
        if not self.dataset.chat:
            return first
        if not isinstance(first, str) or not first:
            raise self.row.fault(f"`{key}` is a text, not empty", repr(first))
        return self._rendered([{"role": "user", "content": first}])

    def _rendered(self, messages: object) -> str:
        if self.chat is None:
            raise self.row.fault(
                "`messages` need a chat template, and the target's tokenizer has none", fix="write `prompt` instead"
            )
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise self.row.fault("`messages` is a list of {role, content}", repr(messages))
        for message in messages:
            if not all(isinstance(message.get(key), str) for key in ("role", "content")):
                raise self.row.fault("a message has the texts `role` and `content`", repr(message))
        try:
            return self.chat.render(messages)
        except ConfigError as error:
            raise self.row.fault(f"{error.where}: {error.what}") from None


def _name(found: str, row: Row) -> str:
    """A domain as the policy and the gates can name it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", found).strip("-._")[:64]
    if not name:
        fix = "name it in ASCII: policy, gates and metrics do"
        raise row.fault("a domain has a letter or digit", repr(found), fix)
    return name
