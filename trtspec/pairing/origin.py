"""Where a model comes from, as far as names tell: hub id, model card, `_name_or_path`, folder name.

Names are hints. What they suggest is worded so, and nothing but a warning to measure follows from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trtspec.checkpoint.jsonfile import read_bytes, read_object
from trtspec.errors import ModelFileError

CARD, ADAPTER = "README.md", "adapter_config.json"
CARD_LIMIT = 4 << 20
Tuning = Literal["base", "instruct"]

_LINES = {
    # line: how its names begin, wherever in the name that stands
    "tinyllama": r"tiny-?llama",
    "llama": r"llama",
    "qwen": r"qwen",
    "gemma": r"gemma",
    "mistral": r"mi[sx]tral",
    "phi": r"phi(?=-?\d)",
    "smollm": r"smollm",
    "falcon": r"falcon",
    "gpt-j": r"gpt-?j",
    "gpt-2": r"gpt-?2",
}
_BRANCHES = {
    # What a model was trained towards: its text is another than that of its family.
    "R1 distillation": r"r1-distill",
    "code": r"coder|codegemma|code-?llama|starcoder|(?<![a-z])code(?![a-z])",
    "mathematics": r"(?<![a-z])math(?![a-z])",
    "medicine": r"(?<![a-z])med(?![a-z])|medical|medgemma",
    "reasoning": r"thinking|reasoning|qwq",
}
_INSTRUCT = re.compile(r"(?<![a-z])(instruct|it|chat|sft|dpo)(?![a-z])")
_BASE = re.compile(r"(?<![a-z])(base|pt|pretrained)(?![a-z])")
_NUMBER = re.compile(r"v?\d+(\.\d+)*|a?[\d.]+[bmk]|\d+x[\d.]+b")
"""A version, a date, a size, a context length."""
_PLAIN = frozenset((
    *("meta", "hf", "mini", "small", "medium", "large", "nemo", "moe", "next", "deepseek", "r1", "distill", "latest"),
    *("preview", "instruct", "it", "chat", "base", "pt", "pretrained", "coder", "code", "math", "thinking"),
    "reasoning",
    # formats of the same weights
    *("fp8", "fp16", "bf16", "nvfp4", "int4", "int8", "w4a16", "w8a8", "w8a16", "w4a8", "awq", "gptq", "bnb", "4bit"),
    *("8bit", "gguf", "mlx", "quantized", "dynamic", "kv"),
))  # fmt: skip
_INSTRUCT_UNLESS_BASE = re.compile(r"qwen3|phi|r1-distill")
"""Families that give their instruction-tuned models the plain name."""


@dataclass(frozen=True)
class Name:
    """A model name taken apart. None or empty is unknown."""

    text: str
    owner: str | None
    line: str | None
    version: str | None
    tuning: Tuning | None
    branches: frozenset[str]
    words: frozenset[str]
    """What is left of the name: words that neither family nor size nor format explains."""

    @classmethod
    def parse(cls, text: str) -> Name:
        """Take `owner/Line-version-size-tuning` apart."""
        owner, _, last = text.rpartition("/")
        lower = last.lower()
        line = next((name for name, pattern in _LINES.items() if re.search(pattern, lower)), None)
        branches = frozenset(branch for branch, pattern in _BRANCHES.items() if re.search(pattern, lower))
        words = _words(lower, line)
        return cls(text, owner or None, line, _version(lower, line), _tuning(lower, line, words), branches, words)


def _words(lower: str, line: str | None) -> frozenset[str]:
    if line is None:
        return frozenset()
    rest = re.sub(_LINES[line] + r"v?[\d.]*", "-", lower)
    parts = [part for part in re.split(r"[-_]+", rest) if part]
    return frozenset(part for part in parts if part not in _PLAIN and not _NUMBER.fullmatch(part))


def _version(lower: str, line: str | None) -> str | None:
    if line is None:
        return None
    found = re.search(_LINES[line] + r"-?v?(\d+(\.\d+)?)(?![\d.]*[bm](?![a-z]))", lower)
    return found[1] if found else None


def _tuning(lower: str, line: str | None, words: frozenset[str]) -> Tuning | None:
    if _INSTRUCT.search(lower):
        return "instruct"
    if _BASE.search(lower):
        return "base"
    if line is None or words:
        return None
    return "instruct" if _INSTRUCT_UNLESS_BASE.search(lower) else "base"


@dataclass(frozen=True)
class Origin:
    """A model's own name, and the model it was trained on from."""

    name: Name | None = None
    base: Name | None = None
    relation: str | None = None
    """How the model card calls it: finetune, quantized, adapter, merge."""

    @property
    def known(self) -> Name | None:
        """The best name there is: its own where that tells a family, else its base's."""
        own = self.name if self.name is not None and self.name.line else None
        return own or self.base

    @property
    def branches(self) -> frozenset[str]:
        """What it was trained towards, itself or the model it was trained on from."""
        return frozenset().union(*(name.branches for name in (self.name, self.base) if name is not None))

    @property
    def derived(self) -> bool:
        """Trained on further, as far as names tell: by a card, an adapter, or words of its own in its name.

        A quantized copy is its base.
        """
        if self.relation is not None:
            return self.relation != "quantized" and self._of_another()
        return bool(self.name and self.name.line and self.name.words) or self._of_another()

    def _of_another(self) -> bool:
        if self.base is None or self.relation in ("adapter", "merge"):
            return self.base is not None
        # An official instruct model's card names its base too: the owner tells them apart, where there is one.
        owners = [name and name.owner for name in (self.name, self.base)]
        return None not in owners and str(owners[0]).lower() != str(owners[1]).lower()

    @property
    def tuning(self) -> Tuning | None:
        """Base or instruct; None where its own name does not tell."""
        if self.name is not None and self.name.line:
            return self.name.tuning
        return self.base.tuning if self.base is not None and self.relation == "quantized" else None


def read_origin(folder: Path, hub: str | None, config: Mapping[str, Any], base: str | None = None) -> Origin:
    """What names in `folder` say. `config` is its config.json as it stands, `base` a base known from elsewhere.

    A card or an adapter file that cannot be read says nothing: neither decides anything.
    """
    named = config.get("_name_or_path")
    path_name = named if isinstance(named, str) and re.fullmatch(r"[\w.-]+/[\w.-]+", named) else None
    own = hub or _folder_name(folder)
    card_base, relation = _card(folder)
    adapter = _adapter(folder)
    if adapter is not None:
        card_base, relation = adapter, "adapter"
    found = base or card_base
    if own is None or Name.parse(own).line is None:
        own, found = own or path_name, found or (path_name if own else None)
    return Origin(Name.parse(own) if own else None, Name.parse(found) if found else None, relation)


def _folder_name(folder: Path) -> str | None:
    """The hub id of a folder in the hub's cache, else the folder's own name where that names a family."""
    for part in reversed(folder.parts):
        if part.startswith("models--") and part.count("--") >= 2:
            return part.removeprefix("models--").replace("--", "/", 1)
    return folder.name if Name.parse(folder.name).line else None


def _card(folder: Path) -> tuple[str | None, str | None]:
    """base_model and base_model_relation of the model card's front matter."""
    try:
        text = read_bytes(folder / CARD, limit=CARD_LIMIT).decode("utf-8")
    except (ModelFileError, UnicodeDecodeError):
        return None, None
    front = re.match(r"---\s*\n(.{0,65536}?)\n---", text, re.DOTALL)
    keys = _yaml(front[1]) if front and "base_model" in front[1] else {}
    base, relation = keys.get("base_model"), keys.get("base_model_relation")
    if isinstance(base, list):
        base = base[0] if len(base) == 1 else None
    return _text(base), _text(relation)


def _yaml(text: str) -> Mapping[Any, Any]:
    import yaml

    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (safe loaders)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _adapter(folder: Path) -> str | None:
    try:
        return _text(read_object(folder / ADAPTER).get("base_model_name_or_path"))
    except ModelFileError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 200 else None
