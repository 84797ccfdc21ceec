"""The chat template of a model folder, rendered as the deployment would."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import TemplateSyntaxError
from tokenizers import Tokenizer

from trtspec.errors import ConfigError, ModelFileError
from trtspec.pairing.rendering import environment
from trtspec.pairing.words import TOKENIZER_CONFIG, read_template

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class ChatTemplate:
    """Jinja source and the special tokens it may name; `where` is the file it came from."""

    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    where: str = "chat template"

    @classmethod
    def read(cls, folder: Path) -> ChatTemplate | None:
        """From chat_template.jinja or tokenizer_config.json of a model folder; None where it has no template.

        The begin token is rendered empty where the tokenizer adds it by itself: preprocessing encodes the rendered
        text with special tokens, and a prompt must not begin with two.
        """
        config = _config(folder / TOKENIZER_CONFIG)
        try:
            template = read_template(folder, config)
        except (OSError, ModelFileError) as error:
            raise ConfigError(f"cannot read the chat template: {error}", where=folder) from None
        source = None if template is None else template.sources.get("default")
        if template is None or source is None:
            return None
        tokens = {name: _content(config.get(name)) for name in _SPECIAL}
        if tokens["bos_token"] and _adds(tokens["bos_token"], folder / "tokenizer.json"):
            tokens["bos_token"] = ""
        return cls(source, tokens, str(folder / template.where))

    def render(self, messages: Sequence[Mapping[str, object]]) -> str:
        """The prompt text, ready for the assistant's answer; ConfigError where the template refuses."""
        world = environment()
        try:
            template = world.from_string(self.source)
            return template.render(messages=messages, add_generation_prompt=True, **self.special_tokens)
        except TemplateSyntaxError as error:
            raise ConfigError(f"not a valid template: {error.message}", where=f"{self.where}:{error.lineno}") from None
        except Exception as error:  # a template is a program: anything can come out of it
            raise ConfigError(f"the chat template refuses these messages: {error}", where=self.where) from None


def _config(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the tokenizer's configuration: {error}", where=path) from None
    if not isinstance(data, dict):
        raise ConfigError("the tokenizer's configuration is not a JSON object", where=path)
    return data


def _content(token: object) -> str:
    """A special token is written as text, or as an object with its text in `content`."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else ""


def _adds(token: str, tokenizer_file: Path) -> bool:
    """Whether encoding puts `token` in front by itself."""
    if not tokenizer_file.is_file():
        return False
    try:
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"cannot read the tokenizer: {error}", where=tokenizer_file) from None
    ids = tokenizer.encode("a").ids
    return bool(ids) and ids[0] == tokenizer.token_to_id(token)
