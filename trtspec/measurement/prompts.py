"""Prompt files: JSON Lines, one prompt a line, all of one domain.

    {"id": "code-1", "prompt": "def f(", "max_tokens": 64}
    {"id": "chat-1", "messages": [{"role": "user", "content": "Hello"}], "domain": "chat"}

`prompt` or `messages` is needed. `id` defaults to the line's number, `max_tokens` to the configuration's; `domain`,
where given, must be the dataset's. Other keys belong to whoever wrote them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from trtspec.config.validation import Dataset, Validation
from trtspec.errors import ConfigError
from trtspec.measurement.chat import ChatTemplate


@dataclass(frozen=True)
class Prompt:
    """One prompt as text, with the longest answer asked for in tokens."""

    id: str
    domain: str
    text: str
    max_tokens: int


def load_all(validation: Validation, chat: ChatTemplate | None) -> list[Prompt]:
    """The prompts of every dataset of the configuration, domain after domain."""
    if not validation.datasets:
        fix = "name a file of prompts under validation.datasets (`profile` also takes --dataset FILE:DOMAIN)"
        raise ConfigError("there are no prompts: nothing to validate with", fix=fix)
    return [
        prompt
        for dataset in validation.datasets
        for prompt in load_prompts(dataset, chat, validation.seed, validation.max_tokens)
    ]


def load_prompts(dataset: Dataset, chat: ChatTemplate | None, seed: int, default_max_tokens: int) -> list[Prompt]:
    """The dataset's prompts in file order; `limit` of them drawn with the seed. ConfigError with file:line."""
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    # Only "\n" ends a line of JSON Lines; str.splitlines would also cut at U+2028 inside a text.
    for number, line in enumerate(_read(dataset).split("\n"), start=1):
        if not line.strip():
            continue
        prompt = _Line(dataset, number, chat).parse(line, default_max_tokens)
        if prompt.id in seen:
            raise ConfigError(
                f"the id {prompt.id!r} is given twice",
                where=f"{dataset.path}:{number}",
                found=f"first at line {seen[prompt.id]}",
            )
        seen[prompt.id] = number
        prompts.append(prompt)
    if not prompts:
        raise ConfigError("the file holds no prompts", where=dataset.path, expected="a JSON object on each line")
    return _drawn(prompts, dataset, seed)


def _read(dataset: Dataset) -> str:
    try:
        return dataset.path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"no such prompts file for the domain {dataset.domain!r}", where=dataset.path) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError("the prompts file is not UTF-8", where=f"{dataset.path}:{line}") from None
    except OSError as error:
        raise ConfigError(f"cannot read the prompts: {error.strerror}", where=dataset.path) from None


def _drawn(prompts: list[Prompt], dataset: Dataset, seed: int) -> list[Prompt]:
    if dataset.limit is None or dataset.limit >= len(prompts):
        return prompts
    # Not for secrets. The domain is part of the seed, so that adding a dataset does not change another's draw.
    chosen = random.Random(f"{seed}:{dataset.domain}").sample(range(len(prompts)), dataset.limit)  # noqa: S311
    return [prompts[i] for i in sorted(chosen)]


@dataclass(frozen=True)
class _Line:
    """One line of a dataset, for errors that say where."""

    dataset: Dataset
    number: int
    chat: ChatTemplate | None

    def parse(self, line: str, default_max_tokens: int) -> Prompt:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self.fault(f"not valid JSON: {getattr(error, 'msg', 'nested too deeply')}") from None
        if not isinstance(data, dict):
            raise self.fault("a prompt is a JSON object", type(data).__name__)
        if data.get("domain", self.dataset.domain) != self.dataset.domain:
            what = f"the dataset's domain is {self.dataset.domain!r}, the prompt's `domain` another"
            raise self.fault(what, repr(data["domain"]))
        name = data.get("id", f"{self.dataset.path.stem}:{self.number}")
        if not isinstance(name, str) or not name:
            raise self.fault("`id` is a text, not empty", repr(name))
        tokens = data.get("max_tokens", default_max_tokens)
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            raise self.fault("`max_tokens` is a whole number from 1", repr(tokens))
        return Prompt(name, self.dataset.domain, self.text(data), tokens)

    def text(self, data: dict[str, object]) -> str:
        if ("prompt" in data) == ("messages" in data):
            raise self.fault("a line has exactly one of `prompt` and `messages`", ", ".join(data) or "no keys")
        text = data["prompt"] if "prompt" in data else self.rendered(data["messages"])
        if not isinstance(text, str) or not text:
            raise self.fault("`prompt` is a text, not empty", repr(text))
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise self.fault("the text holds half of a surrogate pair, which no encoding can send") from None
        return text

    def rendered(self, messages: object) -> str:
        if self.chat is None:
            raise self.fault(
                "`messages` need a chat template, and the target's tokenizer has none", fix="write `prompt` instead"
            )
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise self.fault("`messages` is a list of {role, content}", repr(messages))
        for message in messages:
            if not all(isinstance(message.get(key), str) for key in ("role", "content")):
                raise self.fault("a message has the texts `role` and `content`", repr(message))
        try:
            return self.chat.render(messages)
        except ConfigError as error:
            raise self.fault(f"{error.where}: {error.what}") from None

    def fault(self, what: str, found: str | None = None, fix: str | None = None) -> ConfigError:
        shown = found if found is None or len(found) <= 80 else f"{found[:77]}..."
        return ConfigError(what, where=f"{self.dataset.path}:{self.number}", found=shown, fix=fix)
