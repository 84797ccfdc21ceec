"""The tokenizer-side documents of one model folder, each read once; what cannot be read becomes a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from trtspec.checkpoint.jsonfile import ABSENT, CONFIG_LIMIT, parse_object, present, read_bytes, read_object
from trtspec.config import Role
from trtspec.errors import ModelFileError
from trtspec.pairing.findings import Finding, error_finding
from trtspec.pairing.tokenizer import Vocabulary

MODEL_CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_MAP = "special_tokens_map.json"
JINJA = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Special tokens that transformers hands to a template by these names."""

T = TypeVar("T")


@dataclass(frozen=True)
class Template:
    """Jinja sources by name (`default`, and perhaps `tool_use`), and the file they came from."""

    sources: Mapping[str, str]
    where: str


@dataclass
class Words:
    """One model's documents. Absent files are empty; broken ones are empty too, and a finding says so."""

    role: Role
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    special_map: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    """config.json; of a multimodal model its text part."""
    template: Template | None = None
    rendered: list[dict[str, str]] | None = None
    """`{"text": …}` or `{"error": …}` per sample conversation; None before rendering, or without a template."""
    vocabulary: Vocabulary | None = None
    findings: list[Finding] = field(default_factory=list)

    @classmethod
    def read(cls, role: Role, folder: Path) -> Words:
        """Everything but tokenizer.json, which is read for both models together."""
        words = cls(role, folder)
        words.config = words._object(TOKENIZER_CONFIG, "tokenizer.config-broken")
        words.special_map = words._object(SPECIAL_MAP, "tokenizer.config-broken")
        words.generation = words._object(GENERATION_CONFIG, "stops.broken")
        words.model = _text_part(words._object(MODEL_CONFIG, None))
        words.template = words._try(lambda: read_template(folder, words.config), "template.broken", None)
        return words

    def token(self, name: str) -> str | None:
        """The text of a named special token, from tokenizer_config.json or else special_tokens_map.json."""
        return text_of(self.config.get(name)) or text_of(self.special_map.get(name))

    @property
    def named(self) -> dict[str, str]:
        """Name → text of the special tokens that a template may print."""
        return {name: text for name in NAMED if (text := self.token(name)) is not None}

    def id_of(self, token: str | None) -> int | None:
        """The id that the tokenizer has for a token's text."""
        return None if self.vocabulary is None or token is None else self.vocabulary.ids.get(token)

    def name_of(self, i: int) -> str:
        """The id and the token's text, for a message."""
        text = None if self.vocabulary is None else self.vocabulary.by_id.get(i)
        return f"{i}" if text is None else f"{i} {text!r}"

    def around(self) -> tuple[list[int], list[int]]:
        """Ids that the post-processor puts before and after a text."""
        if self.vocabulary is None:
            return [], []
        bare, full = self.vocabulary.encode("a"), self.vocabulary.encode("a", special=True)
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return full[:start], full[start + len(bare) :]
        return full, []

    def text(self, conversation: int) -> str | None:
        """One rendered sample, or None where there is none."""
        return None if self.rendered is None else self.rendered[conversation].get("text")

    def broken(self, code: str, error: ModelFileError) -> None:
        """Note a broken file."""
        self.findings.append(error_finding(code, self.role, error))

    def _object(self, name: str, code: str | None) -> dict[str, Any]:
        return self._try(lambda: read_object(self.folder / name), code, {})

    def _try(self, read: Callable[[], T], code: str | None, otherwise: T) -> T:
        try:
            return read()
        except OSError as error:  # a folder that may not be entered
            found = ModelFileError(f"cannot be read: {error.strerror}", where=self.folder)
        except ModelFileError as error:
            found = error
        # config.json is judged by the checks of sizes; an absent file is no fault.
        if code is not None and found.what != ABSENT:
            self.broken(code, found)
        return otherwise


def read_template(folder: Path, config: Mapping[str, Any]) -> Template | None:
    """The chat template of a folder; `config` is its tokenizer_config.json. ModelFileError: it is no text.

    Source: transformers 4.57.6: chat_template.jinja, else chat_template.json, else tokenizer_config.json.
    """
    path = folder / JINJA
    if present(path):
        data = read_bytes(path, limit=CONFIG_LIMIT)
        try:
            return Template({"default": data.decode("utf-8")}, JINJA)
        except UnicodeDecodeError as error:
            raise ModelFileError(f"is not UTF-8 text (byte {error.start})", where=path) from None
    path = folder / TEMPLATE_JSON
    if present(path):
        given = parse_object(read_bytes(path, limit=CONFIG_LIMIT), path).get("chat_template")
        return _template(given, path)
    return _template(config.get("chat_template"), folder / TOKENIZER_CONFIG)


def text_of(token: Any) -> str | None:
    """A special token is written as text, or as an object with its text in `content`; None for anything else."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) and found else None


def _text_part(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.get("text_config")
    return config | {k: v for k, v in inner.items() if k not in config} if isinstance(inner, dict) else config


def _template(given: Any, path: Path) -> Template | None:
    """A text; or named texts, as a list of {name, template} or a map."""
    if given is None:
        return None
    if isinstance(given, str):
        return Template({"default": given}, path.name)
    if isinstance(given, list):
        given = {e.get("name"): e.get("template") for e in given if isinstance(e, dict) and _is_name(e.get("name"))}
    if not isinstance(given, dict) or not given or not all(isinstance(source, str) for source in given.values()):
        raise ModelFileError(
            "chat_template is neither a text nor named texts", where=path, found=repr(given)[:80]
        )  # fmt: skip
    return Template(given, path.name)


def _is_name(value: Any) -> bool:
    return isinstance(value, str)
